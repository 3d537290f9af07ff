# SPDX-License-Identifier: MIT
"""The Transformer and the Bahdanau model of Dive into Deep Learning (chapter 11), in plain PyTorch.

The parameter names are those of the book's own modules, so that weights can be copied both ways.  Letters: b batch,
s source length, t target length, h width, n heads.  Every module works in float32 and in float64.
Where this differs from the book on purpose: the decoder never sees later tokens, in evaluation neither, and a
query that may attend to nothing gets zeros instead of the mean of all values.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F

# exp(NOWHERE - anything) is exactly 0, and unlike -inf it never makes a NaN in the backward pass.
NOWHERE = -1e30


def lengths_to_keep(valid_len, keys):
    """Lengths [b] to a mask [b, keys]; true where a key may be attended to."""
    return torch.arange(keys, device=valid_len.device)[None, :] < valid_len[:, None]


def masked_softmax(scores, keep):
    """Softmax over the last axis of the scores where keep is true; a row without any key gives zeros."""
    if keep is None:
        return torch.softmax(scores, dim=-1)
    return torch.softmax(scores.masked_fill(~keep, NOWHERE), dim=-1) * keep


def dot_product_attention(q, k, v, keep, dropout):
    """Explicit scaled dot-product attention: q [b,n,t,d], k and v [b,n,s,d], keep broadcasts to [b,n,t,s]."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return F.dropout(masked_softmax(scores, keep), dropout) @ v


class MultiHeadAttention(nn.Module):
    # Benchmarks put other ways to compute the same thing here.
    attend = staticmethod(dot_product_attention)

    def __init__(self, num_hiddens, num_heads, dropout, bias=False):
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.W_q = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_k = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_v = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_o = nn.Linear(num_hiddens, num_hiddens, bias=bias)

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, x_q, x_kv, keep):
        q, k, v = self.split(self.W_q(x_q)), self.split(self.W_k(x_kv)), self.split(self.W_v(x_kv))
        out = self.attend(q, k, v, keep, self.dropout if self.training else 0.0)
        return self.W_o(out.transpose(1, 2).flatten(2))


class AddNorm(nn.Module):
    def __init__(self, num_hiddens, dropout):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.ln = nn.LayerNorm(num_hiddens)

    def forward(self, x, sublayer):
        return self.ln(x + self.dropout(sublayer))


class FeedForward(nn.Module):
    def __init__(self, num_hiddens, ffn_num_hiddens):
        super().__init__()
        self.dense1 = nn.Linear(num_hiddens, ffn_num_hiddens)
        self.dense2 = nn.Linear(ffn_num_hiddens, num_hiddens)

    def forward(self, x):
        return self.dense2(torch.relu(self.dense1(x)))


class PositionalEncoding(nn.Module):
    """Adds sin(pos / 10000^(2j/h)) to channel 2j and the cosine to channel 2j + 1."""

    def __init__(self, num_hiddens, dropout, max_len=1000):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        # In float64 whatever the model's type is: an angle of 1000 has few digits left in float32.
        position = torch.arange(max_len, dtype=torch.float64)[:, None]
        rate = 10000.0 ** (-torch.arange(0, num_hiddens, 2, dtype=torch.float64) / num_hiddens)
        table = torch.stack((torch.sin(position * rate), torch.cos(position * rate)), dim=-1).flatten(1)
        self.register_buffer("table", table.to(torch.get_default_dtype()), persistent=False)

    def forward(self, x):
        return self.dropout(x + self.table[: x.shape[1]])


class EncoderBlock(nn.Module):
    def __init__(self, num_hiddens, ffn_num_hiddens, num_heads, dropout, use_bias):
        super().__init__()
        self.attention = MultiHeadAttention(num_hiddens, num_heads, dropout, use_bias)
        self.addnorm1 = AddNorm(num_hiddens, dropout)
        self.ffn = FeedForward(num_hiddens, ffn_num_hiddens)
        self.addnorm2 = AddNorm(num_hiddens, dropout)

    def forward(self, x, keep):
        x = self.addnorm1(x, self.attention(x, x, keep))
        return self.addnorm2(x, self.ffn(x))


class DecoderBlock(nn.Module):
    def __init__(self, num_hiddens, ffn_num_hiddens, num_heads, dropout):
        super().__init__()
        self.attention1 = MultiHeadAttention(num_hiddens, num_heads, dropout)
        self.addnorm1 = AddNorm(num_hiddens, dropout)
        self.attention2 = MultiHeadAttention(num_hiddens, num_heads, dropout)
        self.addnorm2 = AddNorm(num_hiddens, dropout)
        self.ffn = FeedForward(num_hiddens, ffn_num_hiddens)
        self.addnorm3 = AddNorm(num_hiddens, dropout)

    def forward(self, x, memory, causal, keep):
        x = self.addnorm1(x, self.attention1(x, x, causal))
        x = self.addnorm2(x, self.attention2(x, memory, keep))
        return self.addnorm3(x, self.ffn(x))


def numbered(blocks):
    """Blocks in order under the book's names block0, block1, ..."""
    return nn.ModuleDict({f"block{i}": block for i, block in enumerate(blocks)})


class Embedding(nn.Module):
    """The input of the Transformer's encoder and decoder: embedding * sqrt(h), then the positions."""

    def __init__(self, vocab_size, num_hiddens, dropout):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, num_hiddens)
        self.pos_encoding = PositionalEncoding(num_hiddens, dropout)

    def embed(self, tokens):
        return self.pos_encoding(self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim))


class TransformerEncoder(Embedding):
    def __init__(self, vocab_size, num_hiddens, ffn_num_hiddens, num_heads, num_blks, dropout, use_bias):
        super().__init__(vocab_size, num_hiddens, dropout)
        self.blks = numbered(
            EncoderBlock(num_hiddens, ffn_num_hiddens, num_heads, dropout, use_bias) for _ in range(num_blks))

    def forward(self, tokens, keep):
        x = self.embed(tokens)
        for block in self.blks.values():
            x = block(x, keep)
        return x


class TransformerDecoder(Embedding):
    def __init__(self, vocab_size, num_hiddens, ffn_num_hiddens, num_heads, num_blks, dropout):
        super().__init__(vocab_size, num_hiddens, dropout)
        self.blks = numbered(
            DecoderBlock(num_hiddens, ffn_num_hiddens, num_heads, dropout) for _ in range(num_blks))
        self.dense = nn.Linear(num_hiddens, vocab_size)

    def forward(self, tokens, memory, keep):
        steps = tokens.shape[1]
        causal = torch.ones(steps, steps, dtype=torch.bool, device=tokens.device).tril()
        x = self.embed(tokens)
        for block in self.blks.values():
            x = block(x, memory, causal, keep)
        return self.dense(x)


class Transformer(nn.Module):
    """src [b,s], src_valid_len [b], tgt_in [b,t] to logits [b,t,tgt_vocab_size].

    use_bias is the encoder's alone, as in the book, whose decoder has no such argument.
    """

    def __init__(self, src_vocab_size, tgt_vocab_size, num_hiddens, ffn_num_hiddens, num_heads, num_blks, dropout,
                 use_bias=False):
        super().__init__()
        sizes = num_hiddens, ffn_num_hiddens, num_heads, num_blks, dropout
        self.encoder = TransformerEncoder(src_vocab_size, *sizes, use_bias)
        self.decoder = TransformerDecoder(tgt_vocab_size, *sizes)

    def forward(self, src, src_valid_len, tgt_in):
        keep = lengths_to_keep(src_valid_len, src.shape[1])[:, None, None, :]
        return self.decoder(tgt_in, self.encoder(src, keep), keep)


class AdditiveAttention(nn.Module):
    """Scores w_v . tanh(W_q query + W_k key) of one query a sentence; the keys are projected once."""

    def __init__(self, num_hiddens, dropout):
        super().__init__()
        self.W_k = nn.Linear(num_hiddens, num_hiddens, bias=False)
        self.W_q = nn.Linear(num_hiddens, num_hiddens, bias=False)
        self.w_v = nn.Linear(num_hiddens, 1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, projected_keys, values, keep):
        scores = self.w_v(torch.tanh(self.W_q(query)[:, None, :] + projected_keys)).squeeze(-1)
        weights = self.dropout(masked_softmax(scores, keep))
        return (weights[:, None, :] @ values).squeeze(1)


class Seq2SeqEncoder(nn.Module):
    """A GRU over all steps, the padding too, as the book has it."""

    def __init__(self, vocab_size, embed_size, num_hiddens, num_layers, dropout):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_size)
        self.rnn = nn.GRU(embed_size, num_hiddens, num_layers, dropout=dropout)

    def forward(self, tokens):
        outputs, state = self.rnn(self.embedding(tokens).transpose(0, 1))
        return outputs.transpose(0, 1), state


class Seq2SeqAttentionDecoder(nn.Module):
    """At each step the top state of the step before is the query; the context precedes the embedding in the GRU's
    input."""

    def __init__(self, vocab_size, embed_size, num_hiddens, num_layers, dropout):
        super().__init__()
        self.attention = AdditiveAttention(num_hiddens, dropout)
        self.embedding = nn.Embedding(vocab_size, embed_size)
        self.rnn = nn.GRU(embed_size + num_hiddens, num_hiddens, num_layers, dropout=dropout)
        self.dense = nn.Linear(num_hiddens, vocab_size)

    def forward(self, tokens, memory, state, keep):
        keys = self.attention.W_k(memory)
        outputs = []
        for x in self.embedding(tokens).unbind(1):
            context = self.attention(state[-1], keys, memory, keep)
            out, state = self.rnn(torch.cat((context, x), dim=-1)[None], state)
            outputs.append(out[0])
        return self.dense(torch.stack(outputs, dim=1))


class Seq2SeqAttention(nn.Module):
    """src [b,s], src_valid_len [b], tgt_in [b,t] to logits [b,t,tgt_vocab_size]."""

    def __init__(self, src_vocab_size, tgt_vocab_size, embed_size, num_hiddens, num_layers, dropout):
        super().__init__()
        sizes = embed_size, num_hiddens, num_layers, dropout
        self.encoder = Seq2SeqEncoder(src_vocab_size, *sizes)
        self.decoder = Seq2SeqAttentionDecoder(tgt_vocab_size, *sizes)

    def forward(self, src, src_valid_len, tgt_in):
        memory, state = self.encoder(src)
        return self.decoder(tgt_in, memory, state, lengths_to_keep(src_valid_len, src.shape[1]))


ARCHITECTURES = {"transformer": Transformer, "seq2seq-attention": Seq2SeqAttention}


def build(config, dtype=torch.float32):
    """The model that a config names; keys that are not its constructor's (architecture, tgt_pad) are left out."""
    keys = {key: value for key, value in config.items() if key not in ("architecture", "tgt_pad")}
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)  # the constructors make their tables in it
    try:
        return ARCHITECTURES[config["architecture"]](**keys)
    finally:
        torch.set_default_dtype(before)


def masked_loss(logits, labels, pad):
    """The mean cross-entropy over the labels that are not padding."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=pad)
