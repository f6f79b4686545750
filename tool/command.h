#pragma once

#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

// One file per command; main.cpp lists them.

namespace starling::tool {

void add_topo(CLI::App& app);
void add_compare(CLI::App& app);
void add_simulate(CLI::App& app);
void add_run(CLI::App& app);
void add_bench(CLI::App& app);
void add_timeline(CLI::App& app);
void add_data(CLI::App& app);
void add_methods(CLI::App& app);
void add_topologies(CLI::App& app);
void add_codecs(CLI::App& app);
void add_report(CLI::App& app);
void add_info(CLI::App& app);
void add_host_store(CLI::App& app);
void add_run_part(CLI::App& app);

/// `starling run -n 4 [--] program ...`: keeps the program's words from the parser, byte for byte.
/// Returns the number of words before them.
int keep_program(const CLI::App& app, int argc, char** argv);

/// How `--help` of all commands looks; commands take it from the app that they are added to.
std::shared_ptr<CLI::Formatter> help_formatter();

/// What main returns when nothing went wrong with the command itself.
int& exit_status();
/// Of a training that diverged, or of several that all did.
constexpr int kDivergedStatus = 3;

/// What is wrong with a command line that the parser refused: words that it does not know come first, in
/// their order and with what may have been meant.
std::string parse_problem(const CLI::App& app, const CLI::ParseError& error);

/// "starling run has no option '--log-dri' (did you mean --log-dir?)"
std::string unknown_word(const CLI::App& app, const std::string& word);

/// The command line as typed, for reports.
void remember_command_line(int argc, char** argv);
const std::string& command_line();
/// Its words behind the program's name.
const std::vector<std::string>& own_arguments();

/// A word as a shell would take it back.
std::string shell_quoted(const std::string& word);

/// For seeds: -1 would silently become 2^64 - 1.
CLI::Validator whole_number();

CLI::Validator seconds_above_0();

/// For transform(): bytes from "400MB"; kB, MB and GB are powers of 1000, KiB, MiB and GiB of 1024.
CLI::Validator byte_size();

/// Throws Error if what was printed could not be written.
void flush_output();

/// Closes a file that was opened at `path` and written to. Throws Error with the system's reason if that
/// failed, and removes the file if it is one that could be mistaken for a whole one.
void close_file(std::ofstream& out, const std::string& path);

/// Writes a whole file; throws Error with the system's reason, and leaves no part of it.
void write_file(const std::string& path, std::string_view text);

/// Throws now what write_file would throw after a long run; an existing file stays as it is.
void check_writable(const std::string& path);

/// "2026-01-31", for reports.
std::string today();

/// Whether tables may use color: a terminal, and NO_COLOR is not set.
bool color_wanted();

}  // namespace starling::tool
