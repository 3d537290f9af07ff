/* SPDX-License-Identifier: MIT
 * Functions of the gemmi library that C code can call. PDB files are those of wwPDB's "Atomic Coordinate Entry Format"
 * 3.3, and mmCIF files those of its PDBx dictionary. */
#include "data/gemmi.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <gemmi/cif.hpp>
#include <gemmi/numb.hpp>
#include <gemmi/pdb.hpp>
#include <gemmi/resinfo.hpp>

struct attn__gemmi {
    struct Sequence {
        std::string letters;
        std::vector<std::string> names; /* names of the residues */
    };
    std::set<std::string> names; /* names of chains and sequences, to which the atoms point */
    std::vector<attn__atom> atoms;
    std::map<std::string, Sequence> sequences;
    std::map<std::string, std::string> parents; /* names of modified residues and of the residues they replace */
    std::set<std::string> modified;             /* name, chain, number and insertion code of residues in MODRES */
    bool labelled = false;                      /* true: the file gives places in the sequences */
};

namespace
{

/* An error that attn finds, in contrast to those of the library. */
struct Refusal : std::runtime_error {
    using std::runtime_error::runtime_error;
};

attn__gemmi_result refused(const char *who, const char *why, char *message)
{
    std::snprintf(message, ATTN__GEMMI_MESSAGE, "%s%s", who, why);
    return ATTN__GEMMI_REFUSED;
}

/* Runs `work`. An exception becomes an error result with a message. */
template <typename Work> attn__gemmi_result guarded(char *message, Work work)
{
    try {
        work();
        return ATTN__GEMMI_OK;
    } catch (const std::bad_alloc &) {
        return ATTN__GEMMI_NO_MEMORY;
    } catch (const Refusal &e) {
        return refused("", e.what(), message);
    } catch (const std::exception &e) {
        return refused(" gemmi says: ", e.what(), message);
    } catch (...) {
        return refused(" ", "gemmi failed", message);
    }
}

/* ---------------------------------------------------------------------------------------- names of residues */

/* Names that gemmi's table lacks or gives another parent: states of protonation in files of CHARMM and AMBER, and
 * pyroglutamic acid, whose parent is glutamine in wwPDB's dictionary of components. */
const std::map<std::string, char> more_names = {{"HSD", 'H'}, {"HSE", 'H'}, {"HSP", 'H'}, {"HID", 'H'},
                                                {"HIE", 'H'}, {"HIP", 'H'}, {"CYX", 'C'}, {"CYM", 'C'},
                                                {"ASH", 'D'}, {"GLH", 'E'}, {"LYN", 'K'}, {"PCA", 'Q'}};

/* Returns what gemmi's table has on a residue. The table's code is undefined for bytes above 127. */
gemmi::ResidueInfo info_of(const std::string &name)
{
    const bool ascii =
        std::all_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 128; });
    return gemmi::find_tabulated_residue(ascii ? name : "");
}

bool is_nucleotide(const std::string &name)
{
    return info_of(name).is_nucleic_acid() || name == "N" || name == "DN" || name == "T";
}

/* Returns whether the name is that of a solvent, an ion, or another molecule that is no residue. */
bool is_other(const std::string &name)
{
    const gemmi::ResidueInfo info = info_of(name);
    return is_nucleotide(name) || (info.found() && !info.is_amino_acid());
}

/* Returns whether the name is that of an amino acid which is no ligand by itself, unlike glycine in a HETATM record. */
bool is_variant(const std::string &name)
{
    const gemmi::ResidueInfo info = info_of(name);
    const char letter = info.one_letter_code;
    return more_names.count(name) || (info.is_amino_acid() && (!info.is_standard() || letter == 'U' || letter == 'O'));
}

char letter_of(const attn__gemmi &file, const std::string &name)
{
    const auto more = more_names.find(name);
    if (more != more_names.end())
        return more->second;
    gemmi::ResidueInfo info = info_of(name);
    const auto parent = file.parents.find(name);
    if (!info.is_amino_acid() && parent != file.parents.end())
        info = info_of(parent->second);
    const bool known = info.is_amino_acid() && info.one_letter_code != ' ';
    return known ? static_cast<char>(std::toupper(info.one_letter_code)) : 'X';
}

void add_to_sequence(attn__gemmi &file, const std::string &key, const std::string &name)
{
    if (is_nucleotide(name))
        return;
    attn__gemmi::Sequence &sequence = file.sequences[key];
    sequence.letters += letter_of(file, name);
    sequence.names.push_back(name);
}

/* Returns whether the file names a residue of HETATM records as a part of a chain: by its place in the sequence, by
 * MODRES, or by the name of a modified residue. If there is a sequence, the name must be in it. */
bool is_named(const attn__gemmi &file, const attn__atom &a, const std::string &name)
{
    const auto found = file.sequences.find(a.key);
    const bool has_sequence = found != file.sequences.end();
    if (has_sequence && a.label > 0 && a.label <= static_cast<int64_t>(found->second.names.size()))
        return true;
    if (file.modified.count(name + ' ' + a.chain + std::to_string(a.number) + a.insertion))
        return true;
    if (file.labelled && a.label == 0)
        return false;
    return is_variant(name) &&
           (!has_sequence || std::count(found->second.names.begin(), found->second.names.end(), name) > 0);
}

/* Adds an atom if it is one of the four that distances need. */
void add(attn__gemmi &file, attn__atom a, const std::string &atom, const std::string &residue, const std::string &chain,
         const std::string &key, bool hetero)
{
    static const char *const places[] = {"N", "CA", "C", "CB"};
    const auto place = std::find(std::begin(places), std::end(places), atom);
    if (place == std::end(places) || is_other(residue))
        return;
    a.place = static_cast<int>(place - std::begin(places));
    a.letter = letter_of(file, residue);
    std::snprintf(a.residue, sizeof a.residue, "%s", residue.c_str());
    a.chain = file.names.insert(chain).first->c_str();
    a.key = file.names.insert(key).first->c_str();
    a.doubtful = hetero && !is_named(file, a, residue);
    file.atoms.push_back(a);
}

/* ------------------------------------------------------------------------------------------------------ PDB */

bool is_record(const std::string &line, const char *record)
{
    const size_t n = std::strlen(record);
    bool same = line.size() >= n;
    for (size_t i = 0; same && i < n; i++)
        same = std::toupper(static_cast<unsigned char>(line[i])) == record[i];
    return same;
}

std::string columns(const std::string &line, size_t begin, size_t end)
{
    std::string text = line.substr(begin, end - begin);
    text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
    return text;
}

/* Returns whether columns [begin, end) are a decimal number. gemmi reads text that is none as zero. */
bool is_decimal(const std::string &line, size_t begin, size_t end)
{
    std::string text = line.substr(begin, end - begin);
    text.erase(0, text.find_first_not_of(' '));
    text.erase(text.find_last_not_of(' ') + 1);
    text.erase(0, !text.empty() && (text[0] == '-' || text[0] == '+'));
    const size_t point = text.find('.');
    if (point != std::string::npos)
        text.erase(point, 1);
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

/* Returns whether columns 23 to 26 are a residue number: a decimal number, or above 9999 one of hybrid-36. */
bool is_residue_number(const std::string &line)
{
    bool hybrid = line[22] >= 'A' && line[22] <= 'Z';
    for (size_t i = 23; hybrid && i < 26; i++)
        hybrid = (line[i] >= 'A' && line[i] <= 'Z') || (line[i] >= '0' && line[i] <= '9');
    return hybrid || (is_decimal(line, 22, 26) && line.find('.', 22) >= 26);
}

void check(const std::string &line, int64_t number, bool right, size_t begin, size_t end, const char *what)
{
    if (!right)
        throw Refusal(std::to_string(number) + ": columns " + std::to_string(begin + 1) + " to " + std::to_string(end) +
                      " are not " + what + ": '" + line.substr(begin, end - begin) + "'");
}

/* Writes the number of an atom in five columns, above 99999 in hybrid-36. */
std::string serial_of(int64_t n)
{
    std::string text = std::to_string(n);
    if (n < 100000)
        return text.insert(0, 5 - text.size(), ' ');
    if (n >= 100000 + 26 * 36 * 36 * 36 * 36)
        throw Refusal(" more than 43 million atoms are not supported");
    text.clear();
    for (int64_t rest = n - 100000 + 10 * 36 * 36 * 36 * 36; rest > 0; rest /= 36)
        text.insert(0, 1, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[rest % 36]);
    return text;
}

/* Checks an atom's record, and appends it to `out` without what is not used. */
void take_atom(std::string &line, int64_t number, int64_t serial, std::string &out)
{
    if (line.size() < 54)
        throw Refusal(std::to_string(number) + ": an atom's record has less than 54 columns");
    line.resize(66, ' ');
    check(line, number, is_residue_number(line), 22, 26, "a residue number");
    for (size_t i = 30; i < 54; i += 8)
        check(line, number, is_decimal(line, i, i + 8), 30, 54, "coordinates");
    if (!is_decimal(line, 54, 60))
        line.replace(54, 6, "  1.00");
    line.replace(6, 5, serial_of(serial));
    /* gemmi joins a ligand to a residue of its name and number, unless their segments differ */
    out += line + std::string(6, ' ') + (line[0] == 'H' || line[0] == 'h' ? "H" : "A");
}

/* Copies the records that are used, up to the end of the first model. Each has its full length, because gemmi may read
 * beyond the end of a short record. Atoms are numbered in the file's order. */
std::string used_records(attn__gemmi &file, const char *text, size_t size)
{
    std::string out;
    int64_t number = 0, atoms = 0;
    for (size_t at = 0; at < size;) {
        const size_t end = static_cast<size_t>(
            std::find_if(text + at, text + size, [](char c) { return c == '\n' || c == '\r'; }) - text);
        std::string line(text + at, end - at);
        std::replace(line.begin(), line.end(), '\0', ' ');
        at = end + (end + 1 < size && text[end] == '\r' && text[end + 1] == '\n' ? 2 : 1);
        number++;
        if (is_record(line, "ATOM ") || is_record(line, "HETATM")) {
            take_atom(line, number, ++atoms, out);
        } else if (is_record(line, "SEQRES")) {
            line.resize(80, ' ');
            out += line;
        } else if (is_record(line, "MODRES")) {
            line.resize(80, ' ');
            file.parents[columns(line, 12, 15)] = columns(line, 24, 27);
            file.modified.insert(columns(line, 12, 15) + ' ' + columns(line, 15, 17) + columns(line, 18, 22) +
                                 line[22]);
        } else if (is_record(line, "ENDMDL") || line == "END" || is_record(line, "END ")) {
            break;
        }
        out += '\n';
    }
    return out;
}

void read_pdb(attn__gemmi &file, const char *text, size_t size, const char *name)
{
    const std::string records = used_records(file, text, size);
    const gemmi::Structure structure = gemmi::read_pdb_from_memory(records.data(), records.size(), name);
    for (const gemmi::Entity &entity : structure.entities)
        for (const std::string &residue : entity.full_sequence)
            add_to_sequence(file, entity.name, residue);
    struct Found {
        const gemmi::Chain *chain;
        const gemmi::Residue *residue;
        const gemmi::Atom *atom;
    };
    std::vector<Found> all;
    for (const gemmi::Chain &chain : structure.models.at(0).chains) {
        for (const gemmi::Residue &residue : chain.residues)
            for (const gemmi::Atom &atom : residue.atoms)
                all.push_back({&chain, &residue, &atom});
    }
    std::sort(all.begin(), all.end(), [](const Found &a, const Found &b) { return a.atom->serial < b.atom->serial; });
    for (const Found &f : all) {
        attn__atom a = {};
        a.number = *f.residue->seqid.num;
        a.insertion = f.residue->seqid.icode;
        /* gemmi has occupancies as float, and sums of two decimals are compared */
        a.rank.occupancy = std::round(static_cast<double>(f.atom->occ) * 1e4) / 1e4;
        a.rank.alternative = f.atom->altloc ? f.atom->altloc : ' ';
        a.at[0] = f.atom->pos.x;
        a.at[1] = f.atom->pos.y;
        a.at[2] = f.atom->pos.z;
        const std::string &chain = f.chain->name;
        add(file, a, f.atom->name, f.residue->name, chain, chain, f.residue->het_flag == 'H');
    }
}

/* ---------------------------------------------------------------------------------------------------- mmCIF */

using Row = gemmi::cif::Table::Row;

/* Returns the text of the first of two columns that has one. */
std::string either(Row &row, int first, int second)
{
    return row.has2(first) ? row.str(first) : row.has2(second) ? row.str(second) : "";
}

double coordinate_of(Row &row, int column)
{
    const double value = gemmi::cif::as_number(row[column]);
    if (!std::isfinite(value))
        throw Refusal(" _atom_site: an atom's coordinate is not a number: '" + row[column].substr(0, 40) + "'");
    return value;
}

/* Parses a residue number. Old files append the insertion code to it. */
int64_t number_of(const std::string &text, char *insertion)
{
    char *end = nullptr;
    const long number = std::strtol(text.c_str(), &end, 10);
    if (end == text.c_str() || (*end && end[1]) || number < -1000000000 || number > 1000000000)
        throw Refusal(" _atom_site: a residue number is not a number: '" + text.substr(0, 40) + "'");
    if (*end && *insertion == ' ')
        *insertion = *end;
    return number;
}

void read_sequences(attn__gemmi &file, gemmi::cif::Block &block)
{
    for (Row row : block.find("_pdbx_struct_mod_residue.", {"label_comp_id", "parent_comp_id"}))
        file.parents[row.str(0)] = row.str(1);
    for (Row row : block.find("_entity_poly_seq.", {"entity_id", "num", "mon_id"})) {
        const std::string key = row.str(0);
        const auto found = file.sequences.find(key);
        const size_t n = found == file.sequences.end() ? 0 : found->second.names.size();
        if (gemmi::cif::as_int(row[1], 0) == static_cast<int>(n) + 1) /* other residues of a place are alternatives */
            add_to_sequence(file, key, row.str(2));
    }
}

enum Column {
    X,
    Y,
    Z,
    GROUP,
    ATOM,
    AUTH_ATOM,
    RESIDUE,
    AUTH_RESIDUE,
    CHAIN,
    LABEL_CHAIN,
    NUMBER,
    LABEL,
    INSERTION,
    MODEL,
    ALTERNATIVE,
    ENTITY,
    OCCUPANCY
};

void add_row(attn__gemmi &file, Row &row)
{
    attn__atom a = {};
    a.insertion = row.has2(INSERTION) ? gemmi::cif::as_char(row[INSERTION], ' ') : ' ';
    a.label = row.has2(LABEL) ? gemmi::cif::as_int(row[LABEL]) : 0;
    const std::string number = either(row, NUMBER, LABEL);
    a.number = number.empty() ? 0 : number_of(number, &a.insertion);
    a.rank.alternative = row.has2(ALTERNATIVE) ? gemmi::cif::as_char(row[ALTERNATIVE], ' ') : ' ';
    a.rank.occupancy = row.has2(OCCUPANCY) ? gemmi::cif::as_number(row[OCCUPANCY], 1) : 1;
    for (int i = 0; i < 3; i++)
        a.at[i] = coordinate_of(row, X + i);
    const std::string group = row.has2(GROUP) ? row.str(GROUP) : "";
    add(file, a, either(row, ATOM, AUTH_ATOM), either(row, RESIDUE, AUTH_RESIDUE), either(row, CHAIN, LABEL_CHAIN),
        row.has2(ENTITY) ? row.str(ENTITY) : "", !group.empty() && std::toupper(group[0]) == 'H');
}

/* Reads the atoms of the first model of a block. Returns false if the block has none. */
bool read_block(attn__gemmi &file, gemmi::cif::Block &block)
{
    if (!block.find_mmcif_category("_atom_site.").ok())
        return false;
    gemmi::cif::Table all =
        block.find("_atom_site.",
                   {"Cartn_x", "Cartn_y", "Cartn_z", "?group_PDB", "?label_atom_id", "?auth_atom_id", "?label_comp_id",
                    "?auth_comp_id", "?auth_asym_id", "?label_asym_id", "?auth_seq_id", "?label_seq_id",
                    "?pdbx_PDB_ins_code", "?pdbx_PDB_model_num", "?label_alt_id", "?label_entity_id", "?occupancy"});
    const auto has = [&](int one, int other) { return all.has_column(one) || all.has_column(other); };
    if (!all.ok() || !has(ATOM, AUTH_ATOM) || !has(RESIDUE, AUTH_RESIDUE) || !has(CHAIN, LABEL_CHAIN) ||
        !has(NUMBER, LABEL))
        throw Refusal(" _atom_site lacks a column (atom, residue, chain, number, x, y or z)");
    read_sequences(file, block);
    for (Row row : all)
        file.labelled |= row.has2(LABEL);
    std::string model;
    bool first = true;
    for (Row row : all) {
        const std::string own = row.has2(MODEL) ? row.str(MODEL) : "";
        model = first ? own : model;
        first = false;
        if (own == model)
            add_row(file, row);
    }
    return true;
}

void read_cif(attn__gemmi &file, const char *text, size_t size, const char *name)
{
    gemmi::cif::Document document = gemmi::cif::read_memory(text, size, name);
    for (gemmi::cif::Block &block : document.blocks)
        if (read_block(file, block))
            return;
}

/* Returns whether the first word that is in no comment begins with "data_". */
bool is_cif(const char *text, size_t size)
{
    const char *at = text, *const end = text + size;
    while (at < end && (std::isspace(static_cast<unsigned char>(*at)) || *at == '#'))
        at = *at == '#' ? std::find(at, end, '\n') : at + 1;
    return is_record(std::string(at, std::min(end, at + 5)), "DATA_");
}

} // namespace

attn__gemmi_result attn__gemmi_open(attn__gemmi **gemmi, const char *text, size_t size, const char *name, char *message)
{
    *gemmi = nullptr;
    return guarded(message, [&] {
        *gemmi = new attn__gemmi;
        if (is_cif(text, size))
            read_cif(**gemmi, text, size, name);
        else
            read_pdb(**gemmi, text, size, name);
    });
}

void attn__gemmi_close(attn__gemmi *gemmi)
{
    delete gemmi;
}

const attn__atom *attn__gemmi_atoms(const attn__gemmi *gemmi, int64_t *n)
{
    *n = static_cast<int64_t>(gemmi->atoms.size());
    return gemmi->atoms.data();
}

const char *attn__gemmi_sequence(const attn__gemmi *gemmi, const char *key, int64_t *n)
{
    for (const auto &sequence : gemmi->sequences) {
        if (sequence.first == key) {
            *n = static_cast<int64_t>(sequence.second.letters.size());
            return sequence.second.letters.data();
        }
    }
    return nullptr;
}
