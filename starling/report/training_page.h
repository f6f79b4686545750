#pragma once
#include <filesystem>
#include <string>
#include <vector>
#include "starling/record/run_log.h"
namespace starling { inline void write_training_page(const std::vector<RunLog>&, const std::string&, const std::filesystem::path&) {} }
