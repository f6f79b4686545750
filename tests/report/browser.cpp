#include "report/browser.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <stdlib.h>
#include <unistd.h>

#include "starling/report/markup.h"

namespace starling::report {
namespace {

// Clicks through the views of every chart and searches the visible part of each for the colors of its legend.
constexpr const char* kProbe = R"html(<pre id="probe"></pre><script>
addEventListener("load", () => {
  const report = document.getElementById("probe"), say = text => report.append(text + "\n");
  say("dark " + matchMedia("(prefers-color-scheme: dark)").matches);
  say("width " + innerWidth + " " + document.documentElement.scrollWidth);
  const copy = document.createElement("canvas"), context = copy.getContext("2d", {willReadFrequently: true});
  function found(canvas, color) {
    const [r, g, b] = [1, 3, 5].map(at => parseInt(color.slice(at, at + 2), 16));
    [copy.width, copy.height] = [canvas.width, canvas.height];
    context.drawImage(canvas, 0, 0);
    const pixels = context.getImageData(0, 0, copy.width, copy.height).data;
    let count = 0;
    for (let i = 0; i < pixels.length; i += 4)
      if (pixels[i + 3] > 200 &&
          Math.abs(pixels[i] - r) + Math.abs(pixels[i + 1] - g) + Math.abs(pixels[i + 2] - b) < 24) ++count;
    return count > 20;
  }
  function look(figure, view) {
    const lines = [...figure.querySelectorAll(".legend li:not([hidden]) line")];
    const hits = lines.filter(line => found(figure.querySelector("canvas"), line.getAttribute("stroke"))).length;
    say("chart " + lines.length + " " + hits + " " + figure.id + " " + view);
  }
  document.querySelectorAll("figure.chart").forEach(figure => {
    const buttons = [...figure.querySelectorAll(".views button")];
    if (!buttons.length) look(figure, "only");
    buttons.forEach(button => {
      button.click();
      look(figure, figure.querySelector(".views [aria-pressed=true]").textContent);
    });
  });
  say("end");
  parent.postMessage(report.textContent, "*");
});
</script></body>)html";

// A window of Chromium is at least 500 pixels wide, but a frame can be as narrow as a phone.
std::string framed(const std::string& page, int width) {
  return fmt::format(
      "<!DOCTYPE html><meta charset=\"utf-8\"><meta name=\"color-scheme\" content=\"light dark\">\n"
      "<pre id=\"probe\"></pre><script>addEventListener(\"message\", "
      "event => document.getElementById(\"probe\").append(event.data));</script>\n"
      "<iframe style=\"border:0;width:{}px;height:2000px\" srcdoc=\"{}\"></iframe>\n",
      width, escape_markup(page));
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void read_probe(const std::string& dom, BrowserFindings& findings) {
  const std::string opening = "<pre id=\"probe\">";
  const std::size_t start = dom.find(opening);
  if (start == std::string::npos) return;
  std::istringstream lines(
      dom.substr(start + opening.size(), dom.find("</pre>", start) - start - opening.size()));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "dark") words >> std::boolalpha >> findings.dark;
    if (kind == "width") words >> findings.width >> findings.content_width;
    if (kind == "end") findings.opened = true;
    if (kind != "chart") continue;
    BrowserFindings::Drawing drawing;
    words >> drawing.expected >> drawing.found >> std::ws;
    std::getline(words, drawing.name);
    findings.drawings.push_back(drawing);
  }
}

}  // namespace

std::string find_browser() {
  const char* path = std::getenv("PATH");
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    std::istringstream folders(path == nullptr ? "" : path);
    for (std::string folder; std::getline(folders, folder, ':');)
      if (access((folder + "/" + name).c_str(), X_OK) == 0) return name;
  }
  return "";
}

BrowserFindings open_in_browser(const std::string& html, const BrowserView& view) {
  std::string folder = (std::filesystem::temp_directory_path() / "starling_browser_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("mkdtemp");
  std::string probed = html;
  probed.replace(probed.rfind("</body>"), 7, kProbe);
  std::ofstream(folder + "/page.html", std::ios::binary) << framed(probed, view.width);
  const std::string command = fmt::format(
      "timeout 120 {0} --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars "
      "{1} "
      "--user-data-dir='{2}/profile' --window-size=1400,2000 --virtual-time-budget=10000 "
      "--enable-logging=stderr --v=0 "
      "--dump-dom 'file://{2}/page.html' > '{2}/dom' 2> '{2}/log'",
      find_browser(), view.dark ? "--force-dark-mode" : "", folder);
  const int status = std::system(command.c_str());
  BrowserFindings findings;
  findings.raw = fmt::format("status {}\n{}", status, contents(folder + "/log"));
  read_probe(contents(folder + "/dom"), findings);
  std::istringstream log(findings.raw);
  for (std::string line; std::getline(log, line);)
    if (line.find("CONSOLE") != std::string::npos) findings.console += line + '\n';
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return findings;
}

}  // namespace starling::report
