/* SPDX-License-Identifier: MIT
 * Functions of the SentencePiece library that C code can call. */
#include "data/sentencepiece.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <locale>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

struct attn__spm {
    sentencepiece::SentencePieceProcessor processor;
};

namespace
{

attn__spm_result refused(const char *why, char *message)
{
    std::snprintf(message, ATTN__SPM_MESSAGE, "%s", why);
    return ATTN__SPM_REFUSED;
}

attn__spm_result result_of(const sentencepiece::util::Status &status, char *message)
{
    return status.ok() ? ATTN__SPM_OK : refused(status.message(), message);
}

/* Returns the result of `work`. An exception becomes an error result with a message. */
template <typename Work> attn__spm_result guarded(char *message, Work work)
{
    try {
        return work();
    } catch (const std::bad_alloc &) {
        return ATTN__SPM_NO_MEMORY;
    } catch (const std::exception &e) {
        return refused(e.what(), message);
    }
}

/* Iterates over texts one after the other, without a copy of all texts. */
class Texts : public sentencepiece::SentenceIterator
{
  public:
    Texts(const char *const *texts, int64_t n) : texts_(texts), n_(n)
    {
        load();
    }
    bool done() const override
    {
        return at_ >= n_;
    }
    void Next() override
    {
        at_++;
        load();
    }
    const std::string &value() const override
    {
        return value_;
    }
    sentencepiece::util::Status status() const override
    {
        return sentencepiece::util::Status();
    }

  private:
    void load()
    {
        if (at_ < n_)
            value_ = texts_[at_];
    }
    const char *const *texts_;
    int64_t n_, at_ = 0;
    std::string value_;
};

} // namespace

attn__spm_result attn__spm_open(attn__spm **spm, const char *bytes, size_t size, char *message)
{
    *spm = nullptr;
    return guarded(message, [&] {
        attn__spm *made = new attn__spm;
        *spm = made;
        return result_of(made->processor.LoadFromSerializedProto(std::string_view(bytes, size)), message);
    });
}

void attn__spm_close(attn__spm *spm)
{
    delete spm;
}

int64_t attn__spm_size(const attn__spm *spm)
{
    return spm->processor.GetPieceSize();
}

const char *attn__spm_piece(const attn__spm *spm, int64_t id, size_t *length, char *kind)
{
    const int i = static_cast<int>(id);
    const std::string &piece = spm->processor.IdToPiece(i);
    *length = piece.size();
    *kind = spm->processor.IsUnknown(i) ? 'u' : spm->processor.IsControl(i) ? 'c' : 'n';
    return piece.c_str();
}

attn__spm_result attn__spm_encode(const attn__spm *spm, const char *text, size_t length, attn__spm_take *take,
                                  void *user, char *message)
{
    return guarded(
        message,
        [&] {
            std::vector<std::string> pieces;
            const attn__spm_result result =
                result_of(spm->processor.Encode(std::string_view(text, length), &pieces), message);
            for (size_t i = 0; result == ATTN__SPM_OK && i < pieces.size(); i++)
                take(user, pieces[i].data(), pieces[i].size());
            return result;
        });
}

attn__spm_result attn__spm_decode(const attn__spm *spm, const char *const *pieces, const size_t *lengths, int64_t n,
                                  attn__spm_take *take, void *user, char *message)
{
    return guarded(
        message,
        [&] {
            std::vector<std::string> all;
            std::string text;
            for (int64_t i = 0; i < n; i++)
                all.emplace_back(pieces[i], lengths[i]);
            const attn__spm_result result = result_of(spm->processor.Decode(all, &text), message);
            if (result == ATTN__SPM_OK)
                take(user, text.data(), text.size());
            return result;
        });
}

attn__spm_result attn__spm_train(const char *const *texts, int64_t n, const char *kind, int64_t size, double coverage,
                                 int64_t *needed, attn__spm_take *take, void *user, char *message)
{
    return guarded(
        message,
        [&] {
            /* The number of threads decides how sums are divided. A fixed number gives the same pieces on every
             * machine. */
            std::unordered_map<std::string, std::string> options = {
                {"model_type", kind},
                {"vocab_size", std::to_string(size)},
                {"hard_vocab_limit", "false"},
                {"byte_fallback", "true"},
                {"num_threads", "2"},
                {"pad_id", "0"},
                {"bos_id", "1"},
                {"eos_id", "2"},
                {"unk_id", "3"},
                {"bos_piece", "<bos>"},
                {"eos_piece", "<eos>"},
                {"normalization_rule_name", "nmt_nfkc"},
                {"minloglevel", "3"},
            };
            if (coverage > 0) {
                std::ostringstream share; /* std::to_string would write the locale's decimal point */
                share.imbue(std::locale::classic());
                share << coverage;
                options["character_coverage"] = share.str();
            }
            Texts sentences(texts, n);
            std::string model;
            const sentencepiece::util::Status status =
                sentencepiece::SentencePieceTrainer::Train(options, &sentences, &model);
            const attn__spm_result result = result_of(status, message);
            /* The library tells the number only in its text: "... required_chars. 1000 vs 3263. ..." */
            const std::string text = status.ToString();
            const size_t at = text.find("required_chars. "),
                         number = text.find(" vs ", at == std::string::npos ? 0 : at);
            *needed =
                at == std::string::npos || number == std::string::npos ? 0 : std::atoll(text.c_str() + number + 4);
            if (result == ATTN__SPM_OK)
                take(user, model.data(), model.size());
            return result;
        });
}
