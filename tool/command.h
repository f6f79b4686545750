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

/// `starling run -n 4 [--] program ...`: hides the program's words from the parser, unchanged. Returns the
/// number of words before them.
int keep_program(const CLI::App& app, int argc, char** argv);

/// The format of `--help`, which commands inherit from the app that they are added to.
std::shared_ptr<CLI::Formatter> help_formatter();

/// The exit status of main if the command itself has not failed.
int& exit_status();
/// The status if the training diverged or, with several runs, all of them did.
constexpr int kDivergedStatus = 3;

/// Describes what is wrong with a command line that the parser rejected: unknown words come first, in their
/// order and each with the closest valid one.
std::string parse_problem(const CLI::App& app, const CLI::ParseError& error);

/// "starling run has no option '--log-dri' (did you mean --log-dir?)"
std::string unknown_word(const CLI::App& app, const std::string& word);

/// Stores the command line as typed, for reports.
void remember_command_line(int argc, char** argv);
const std::string& command_line();
/// The words after the program's name.
const std::vector<std::string>& own_arguments();

/// Quotes a word for use in a shell.
std::string shell_quoted(const std::string& word);

/// For seeds: -1 would silently become 2^64 - 1.
CLI::Validator whole_number();

CLI::Validator seconds_above_0();

/// For transform(): converts "400MB" to bytes; kB, MB and GB are powers of 1000, KiB, MiB and GiB of 1024.
CLI::Validator byte_size();

/// Throws Error if the standard output could not be written.
void flush_output();

/// Closes a file that was written to `path`. If that fails, throws Error with the system's reason and removes
/// the file if it could be mistaken for a complete one.
void close_file(std::ofstream& out, const std::string& path);

/// Writes a complete file; throws Error with the system's reason and then leaves no partial file.
void write_file(const std::string& path, std::string_view text);

/// Throws, before a long run, the error that write_file would throw after it; an existing file stays
/// unchanged.
void check_writable(const std::string& path);

/// Today as in "2026-01-31", for reports.
std::string today();

/// Whether tables may use color: on a terminal, unless NO_COLOR is set.
bool color_wanted();

}  // namespace starling::tool
