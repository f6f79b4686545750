#include "tool/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "starling/base/error.h"
#include "tool/tool_runner.h"

namespace starling::tool {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A command with one setting of each type.
struct Command {
  Command() {
    settings.add("model", model, "what to train");
    settings.add("batch", batch, "how many");
    settings.add("clip_norm", clip_norm, "how long");
    settings.add("lr", lr, "how fast");
    settings.add("eager", eager, "whether");
    settings.add("seed", seed, "of all");
    settings.add_former_name("network", "model");
    settings.add_options(app);
  }

  void parse(const std::string& words) { app.parse(words); }

  std::string model = "lenet";
  int batch = 32;
  double clip_norm = 0;
  std::optional<double> lr;
  bool eager = false;
  std::uint64_t seed = 1;
  Settings settings;
  CLI::App app;
};

// The error when this file is read.
std::string complaint(const std::string& toml) {
  const Folder folder;
  Command command;
  try {
    command.settings.read_file(folder.write("f.toml", toml));
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Settings, TakeEveryTypeFromAFile) {
  const Folder folder;
  Command command;
  command.settings.read_file(folder.write(
      "f.toml", "model = \"mlp(width=5)\"\nbatch = 8\nclip_norm = 2\nlr = 0.25\neager = true\nseed = 9\n"));
  EXPECT_EQ(command.model, "mlp(width=5)");
  EXPECT_EQ(command.batch, 8);
  EXPECT_EQ(command.clip_norm, 2);
  EXPECT_EQ(command.lr, 0.25);
  EXPECT_TRUE(command.eager);
  EXPECT_EQ(command.seed, 9U);
  EXPECT_EQ(command.settings.from("batch"), Settings::From::file);
  EXPECT_THAT(command.settings.where("batch"), HasSubstr("f.toml, line 2"));
}

TEST(Settings, FormerNamesCountAndSayTheNewOneOnce) {
  const Folder folder;
  const std::string file = folder.write("f.toml", "network = \"mlp\"\n");
  testing::internal::CaptureStderr();
  Command from_file;
  from_file.settings.read_file(file);
  EXPECT_EQ(from_file.model, "mlp");
  Command typed;
  typed.parse("--network cnn");
  typed.settings.read_file(file);
  EXPECT_EQ(typed.model, "cnn") << "the command line wins under its former name, too";
  EXPECT_EQ(typed.settings.from("model"), Settings::From::command_line);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "starling: network is now called model; the old name will go away\n"
            "starling: --network is now called --model; the old name will go away\n");
  EXPECT_THAT(typed.app.help(), Not(HasSubstr("--network")));
}

TEST(Settings, QuotedNumbersGetAdvice) {
  EXPECT_THAT(complaint("lr = \"0.1\"\n"),
              HasSubstr("line 1: lr = \"0.1\" is not a number; write it without quotes"));
  EXPECT_THAT(complaint("lr = \"fast\"\n"), testing::EndsWith("lr = \"fast\" is not a number"));
}

TEST(Settings, YesAndNoAreBooleans) {
  Command command;
  command.parse("--eager yes");
  EXPECT_TRUE(command.eager);
  command.parse("--eager no");
  EXPECT_FALSE(command.eager);
  EXPECT_THROW(command.parse("--eager maybe"), Error);
}

TEST(Settings, CommandLinesWinOverFiles) {
  const Folder folder;
  Command command;
  command.parse("--batch 4 --clip-norm 1.5 --batch 5");
  command.settings.read_file(folder.write("f.toml", "batch = 8\nclip_norm = 2.0\nseed = 3\n"));
  EXPECT_EQ(command.batch, 5) << "the last one typed";
  EXPECT_EQ(command.clip_norm, 1.5);
  EXPECT_EQ(command.seed, 3U);
  EXPECT_EQ(command.model, "lenet");
  EXPECT_EQ(command.settings.from("batch"), Settings::From::command_line);
  EXPECT_EQ(command.settings.from("seed"), Settings::From::file);
  EXPECT_EQ(command.settings.from("model"), Settings::From::nobody);
  EXPECT_EQ(command.settings.from("lr"), Settings::From::nobody);
}

TEST(Settings, NameLineAndKeyOfEveryMistake) {
  EXPECT_THAT(complaint("batch = 8\nmodl = \"x\"\n"),
              AllOf(HasSubstr("f.toml, line 2"), HasSubstr("'modl'"), HasSubstr("did you mean model")));
  EXPECT_THAT(complaint("\n\nbatch = \"many\"\n"),
              AllOf(HasSubstr("line 3"), HasSubstr("batch = \"many\" is not a whole number")));
  EXPECT_THAT(complaint("batch = 1.5\n"), HasSubstr("line 1: batch = 1.5 is not a whole number"));
  EXPECT_THAT(complaint("batch = 99999999999\n"),
              HasSubstr("line 1: batch = 99999999999 is not a whole number"));
  EXPECT_THAT(complaint("seed = -1\n"), HasSubstr("line 1: seed = -1 is not a whole number from 0 up"));
  EXPECT_THAT(complaint("lr = true\n"), HasSubstr("line 1: lr = true is not a number"));
  EXPECT_THAT(complaint("eager = 1\n"), HasSubstr("line 1: eager = 1 is not true or false"));
  EXPECT_THAT(complaint("model = 3\n"), HasSubstr("line 1: model = 3 is not a text"));
  EXPECT_THAT(complaint("lr = 1\nseed = [1, 2]\n"),
              AllOf(HasSubstr("line 2: seed"), HasSubstr("not a list")));
  EXPECT_THAT(complaint("seed = []\n"), HasSubstr("line 1: seed is an empty list"));
  EXPECT_THAT(complaint("lr = 1\nseed = 2000-01-01\n"), HasSubstr("line 2: seed is neither"));
  EXPECT_THAT(complaint("[a]\nseed = 1\n"), AllOf(HasSubstr("line 2"), HasSubstr("'a.seed'")));
  EXPECT_THAT(complaint("seed = 1\nseed = 2\n"), AllOf(HasSubstr("line 2"), HasSubstr("seed")));
  EXPECT_THAT(complaint("batch = 1\nmodel = \"x\n"), HasSubstr("f.toml, line 2"));
  Command command;
  EXPECT_THROW(command.settings.read_file("/nowhere.toml"), Error);
  EXPECT_THROW(command.parse("--batch 1.5"), Error);
  EXPECT_THROW(command.parse("--eager maybe"), Error);
}

TEST(Settings, ReadTomlInTheOrderOfItsLines) {
  const Folder folder;
  const auto entries = read_toml(
      folder.write("f.toml", "zebra = 1\nant = [\"a\", \"b\"]\n[[case]]\nx = 0.5\n[[case]]\nx = true\n"));
  std::vector<std::string> keys;
  for (const TomlEntry& entry : entries) keys.push_back(entry.key);
  EXPECT_THAT(keys, ElementsAre("zebra", "ant", "case.0.x", "case.1.x"));
  EXPECT_TRUE(entries[1].list);
  EXPECT_EQ(to_text(entries[1].values[1]), "b");
  EXPECT_EQ(to_text(entries[2].values[0]), "0.5");
  EXPECT_EQ(entries[3].line, 6U);
}

}  // namespace
}  // namespace starling::tool
