#include "starling/report/page_parts.h"

namespace starling::report {

std::string_view page_style() {
  return R"css(
:root {
  color-scheme: light dark;
  --ground: #f4f6fa; --paper: #fff; --ink: #182033; --quiet: #5d6779; --line: #dde2ea; --accent: #33508f;
  --band: #f7f9fc; --good: #2c7a4b; --bad: #b04a2f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #0e1218; --paper: #151a23; --ink: #e8ecf4; --quiet: #9aa5b8; --line: #2a3240;
    --accent: #86a5ee; --band: #1a202b; --good: #6fc792; --bad: #ef9a7f;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
header, main, footer { max-width: 1140px; margin: 0 auto; padding: 0 24px; }
header { padding-top: 40px; padding-bottom: 24px; }
h1 { margin: 0; font-size: 30px; line-height: 1.2; letter-spacing: -0.015em; text-wrap: balance;
  overflow-wrap: anywhere; }
header p { margin: 8px 0 0; color: var(--quiet); font-size: 17px; }
section { margin: 0; padding-top: 18px; }
h2 { margin: 0 0 12px; font-size: 20px; line-height: 1.3; letter-spacing: -0.01em; overflow-wrap: anywhere; }
section > p, main > p { max-width: 75ch; margin: 0 0 14px; overflow-wrap: anywhere; }
.card { background: var(--paper); border: 1px solid var(--line); border-radius: 12px; margin: 0 0 18px; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 1px;
  overflow: hidden; }
.facts div { box-shadow: 0 0 0 1px var(--line); padding: 12px 18px; }
.facts dt { color: var(--quiet); font-size: 13px; }
.facts dd { margin: 2px 0 0; font-size: 20px; font-weight: 600; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.verdicts { padding: 6px 0; list-style: none; counter-reset: verdict; }
.verdicts li { counter-increment: verdict; position: relative; padding: 10px 18px 10px 60px; }
.verdicts li + li { border-top: 1px solid var(--line); }
.verdicts li::before { content: counter(verdict); position: absolute; left: 18px; top: 11px; width: 27px;
  height: 27px; border-radius: 50%; background: var(--good); color: var(--paper); font-weight: 700;
  font-size: 14px; line-height: 27px; text-align: center; }
.verdicts li.bad::before { background: var(--bad); }
.verdicts b { display: block; font-size: 18px; letter-spacing: -0.01em; }
.verdicts span { display: block; max-width: 85ch; color: var(--quiet); font-size: 15px; }
.table { overflow-x: auto; border-radius: 11px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: 14px 18px 4px; font-weight: 600; font-size: 15px; }
th, td { padding: 7px 18px; text-align: left; white-space: nowrap; }
.dense table { font-size: 13px; }
.dense th, .dense td { padding: 7px 8px; }
.dense th:first-child, .dense td:first-child { padding-left: 18px; }
th { color: var(--quiet); font-weight: 600; border-bottom: 1px solid var(--line); }
.right { text-align: right; }
tr { background: var(--paper); }
tbody tr:nth-child(even) { background: var(--band); }
th:first-child, td:first-child { position: sticky; left: 0; background: inherit; }
tbody tr.ruled td { border-top: 1px solid var(--line); }
.notes { margin: 0; padding: 8px 18px 12px; color: var(--quiet); font-size: 13px;
  border-top: 1px solid var(--line); }
figure { margin: 0; }
.chart { padding: 14px 18px 16px; }
.chart-head { display: flex; align-items: baseline; gap: 12px; }
.chart-head h3 { margin: 0; font-size: 16px; flex: 1; overflow-wrap: anywhere; }
.chart button { font: inherit; color: inherit; background: none; border: 0; border-radius: 6px;
  cursor: pointer; }
.chart button:focus-visible { outline: 2px solid var(--accent); }
.chart-head button { font-size: 12px; color: var(--quiet); padding: 2px 8px; border: 1px solid var(--line); }
.chart-head button:hover { color: var(--ink); }
.views { display: inline-flex; gap: 2px; margin-top: 8px; padding: 2px; border: 1px solid var(--line);
  border-radius: 8px; }
.views button { padding: 3px 12px; font-size: 13px; color: var(--quiet); }
.views button[aria-pressed="true"] { background: var(--ground); color: var(--ink); font-weight: 600; }
.canvas { position: relative; height: 400px; margin-top: 8px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 4px; margin: 8px 0 0; padding: 0; list-style: none; }
.legend button { display: inline-flex; align-items: center; gap: 7px; padding: 3px 8px; font-size: 13px;
  text-align: left; }
.legend button:hover { background: var(--band); }
.legend button[aria-pressed="false"] { opacity: 0.4; text-decoration: line-through; }
.legend svg { flex: none; }
figcaption { color: var(--quiet); font-size: 13px; margin-top: 8px; overflow-wrap: anywhere; }
.pictures { display: grid; gap: 18px; margin: 0 0 18px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr)); }
.pictures.single { grid-template-columns: 1fr; }
.picture { margin: 0; overflow: hidden; display: flex; flex-direction: column; }
.picture svg { display: block; max-width: 100%; height: auto; margin: 0 auto; }
.picture figcaption { margin-top: auto; padding: 0 18px 14px; }
.fold { margin: 0 0 18px; }
.fold summary { cursor: pointer; padding: 4px 0 10px; color: var(--accent); font-size: 15px; }
.code { padding: 12px 18px; }
.missing { padding: 12px 18px; color: var(--quiet); }
footer { margin-top: 40px; padding-bottom: 40px; color: var(--quiet); font-size: 13px; }
footer code { display: block; margin: 6px 0; padding: 10px 14px; color: var(--ink);
  background: var(--paper); border: 1px solid var(--line); border-radius: 8px; }
footer code, .code code { overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 13px/1.5 ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; }
@media (max-width: 600px) {
  header, main, footer { padding-left: 14px; padding-right: 14px; }
  header { padding-top: 24px; }
  h1 { font-size: 24px; }
  .chart { padding: 12px 10px; }
  .canvas { height: 320px; }
  th, td { padding: 7px 10px; }
  caption, .notes { padding-left: 10px; padding-right: 10px; }
  .facts { grid-template-columns: 1fr 1fr; }
  .wide { overflow-x: auto; }
  .wide svg { max-width: none; margin: 0; }
}
@media print { body { background: #fff; } .card { break-inside: avoid;
  } .chart-head button { display: none; } }
)css";
}

}  // namespace starling::report
