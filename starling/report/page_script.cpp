#include "starling/report/page_parts.h"

namespace starling::report {

std::string_view page_script() {
  return R"js(
(function () {
  "use strict";
  const darkness = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => darkness.matches ? "dark" : "light";
  const dashes = [[], [9, 3, 2, 3], [2, 3], [14, 4], [6, 3, 2, 3, 2, 3]];
  const dashOf = (series, i) => series.dashed ? [6, 5] : dashes[Math.floor(i / 6) % dashes.length];
  const colorOf = i => palette[i % palette.length][theme()];
  const variable = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const superscripts = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079";
  const raised = n => String(n).replace(/[-0-9]/g, c => c === "-" ? "\u207b" : superscripts[c]);
  function short(value) {
    const size = Math.abs(value);
    if (value === 0 || (size >= 1e-3 && size < 1e4)) return String(Number(value.toPrecision(5)));
    const units = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
    for (const [scale, unit] of units)
      if (size >= scale && size < 1e15) return Number((value / scale).toPrecision(4)) + unit;
    return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  }
  function logLabel(value) {
    const exponent = Math.round(Math.log10(value));
    const plain = this.min >= 1e-3 && this.max < 1e7;
    if (plain || value === 1 || Math.abs(value / Math.pow(10, exponent) - 1) > 1e-9) return short(value);
    return "10" + raised(exponent);
  }
  // Limits close to the values; whole decades only if there are several.
  function logLimits(axis) {
    if (axis.isHorizontal() || !(axis.min > 0 && axis.max > axis.min)) return;
    const ratio = axis.max / axis.min;
    const factors = ratio > 1e3 ? [1, 10] : ratio > 3 ? [1, 2, 5, 10] : [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    const around = (value, inside) => {
      const decade = Math.pow(10, Math.floor(Math.log10(value) + 1e-9));
      return factors.map(f => f * decade).filter(v => inside(v / value));
    };
    axis.min = Math.max(...around(axis.min, share => share <= 1 + 1e-9));
    axis.max = Math.min(...around(axis.max, share => share >= 1 - 1e-9));
  }
  // Powers of ten, thinned to what fits; a short axis also needs numbers between them.
  function logTicks(axis) {
    const from = Math.floor(Math.log10(axis.min)), to = Math.ceil(Math.log10(axis.max));
    const most = Math.max(2, Math.floor(axis.isHorizontal() ? axis.width / 60 : axis.height / 34) || 8);
    const stride = Math.max(1, Math.ceil((to - from) / most));
    for (const factors of [[1], [1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]]) {
      const values = [];
      for (let e = from; e <= to; ++e)
        if (e % stride === 0) values.push(...factors.map(f => f * Math.pow(10, e)));
      const shown = values.filter(v => v >= axis.min * (1 - 1e-9) && v <= axis.max * (1 + 1e-9));
      if (shown.length < 3) continue;
      axis.ticks = shown.map(v => ({value: v}));
      return;
    }
  }

  // For every line, the point nearest to the pointer's x: after thinning, lines rarely have equal x.
  Chart.Interaction.modes.nearestOfEach = function (chart, event) {
    const found = [];
    const spot = Chart.helpers.getRelativePosition(event, chart);
    for (const meta of chart.getSortedVisibleDatasetMetas()) {
      let best = null, distance = Infinity;
      meta.data.forEach((element, index) => {
        const apart = Math.abs(element.x - spot.x);
        if (element.skip || apart >= distance) return;
        distance = apart;
        best = {element: element, datasetIndex: meta.index, index: index};
      });
      if (best && distance < 24) found.push(best);
    }
    return found;
  };
  const crosshair = {
    id: "crosshair",
    afterDatasetsDraw(chart) {
      const active = chart.tooltip && chart.tooltip.getActiveElements();
      if (!active || !active.length) return;
      const area = chart.chartArea, context = chart.ctx, x = chart.tooltip.caretX;
      if (x < area.left || x > area.right) return;
      context.save();
      context.strokeStyle = variable("--quiet");
      context.globalAlpha = 0.5;
      context.setLineDash([3, 3]);
      context.beginPath();
      context.moveTo(x, area.top);
      context.lineTo(x, area.bottom);
      context.stroke();
      context.restore();
    }
  };

  function axisOptions(label, logarithmic) {
    const options = {
      type: logarithmic ? "logarithmic" : "linear",
      title: {display: label !== "", text: label},
      grid: {drawTicks: false},
      ticks: {padding: 8, maxRotation: 0, includeBounds: false, autoSkip: !logarithmic, callback: logarithmic ? logLabel : short}
    };
    if (logarithmic)
      Object.assign(options, {bounds: "data", afterDataLimits: logLimits, afterBuildTicks: logTicks});
    return options;
  }

  // The colors of the theme; a change of the theme redraws the chart.
  function painted(chart) {
    const ink = variable("--ink"), quiet = variable("--quiet");
    const line = variable("--line"), paper = variable("--paper");
    chart.data.datasets.forEach((dataset, i) => {
      dataset.borderColor = dataset.backgroundColor = dataset.pointBackgroundColor = dataset.pointBorderColor =
        dataset.pointHoverBackgroundColor = colorOf(i);
      dataset.pointHoverBorderColor = paper;
    });
    for (const axis of [chart.options.scales.x, chart.options.scales.y]) {
      axis.grid.color = axis.grid.borderColor = line;
      axis.ticks.color = quiet;
      axis.title.color = quiet;
    }
    Object.assign(chart.options.plugins.tooltip, {
      backgroundColor: paper, titleColor: ink, bodyColor: ink, borderColor: line
    });
    return chart;
  }

  function sample(i, series) {
    return '<svg width="26" height="10" aria-hidden="true"><line x1="1" y1="5" x2="25" y2="5" stroke-width="2.5"' +
      ' stroke="' + colorOf(i) + '" stroke-dasharray="' + dashOf(series, i).join(" ") + '"/></svg>';
  }

  // `hidden` outlives the chart, so that another view of the same lines hides the same lines.
  function addLegend(figure, data, chart, hidden) {
    const list = figure.querySelector(".legend");
    list.replaceChildren();
    data.series.forEach((series, i) => {
      const item = document.createElement("li"), button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.title = "click: show or hide; double click: only this one";
      button.innerHTML = sample(i, series);
      button.append(series.name);
      const show = (k, on) => {
        chart.setDatasetVisibility(k, on);
        list.children[k].firstChild.setAttribute("aria-pressed", String(on));
        if (on) hidden.delete(data.series[k].name); else hidden.add(data.series[k].name);
      };
      button.addEventListener("click", () => { show(i, !chart.isDatasetVisible(i)); chart.update("none"); });
      button.addEventListener("dblclick", () => {
        const alone = data.series.every((_, k) => k === i || !chart.isDatasetVisible(k));
        data.series.forEach((_, k) => show(k, alone || k === i));
        chart.update("none");
      });
      const emphasize = on => {
        chart.data.datasets.forEach((dataset, k) => { dataset.borderWidth = on && k === i ? 4 : on ? 1 : 2; });
        chart.update("none");
      };
      button.addEventListener("mouseenter", () => emphasize(true));
      button.addEventListener("mouseleave", () => emphasize(false));
      item.append(button);
      item.hidden = series.x.length === 0;
      list.append(item);
      if (hidden.has(series.name)) show(i, false);
    });
  }

  function saveCsv(data) {
    const quote = text => /[",\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
    const rows = [["series", data.rows ? "row" : data.xLabel || "x", data.yLabel || "y"].map(quote).join(",")];
    for (const series of data.series)
      series.x.forEach((x, k) => rows.push(quote(series.name) + "," + quote(String(x)) + "," + series.y[k]));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([rows.join("\n") + "\n"], {type: "text/csv"}));
    link.download = (data.title || "chart").replace(/[^A-Za-z0-9]+/g, "-").toLowerCase() + ".csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // From the least x to the greatest, so that an axis does not end with empty space. A linear axis starts at
  // zero if that is near.
  function extent(data) {
    const all = data.series.flatMap(series => series.x);
    const min = all.reduce((a, b) => Math.min(a, b), Infinity), max = all.reduce((a, b) => Math.max(a, b), -Infinity);
    if (!(min < max)) return {};
    return {min: !data.logX && min > 0 && min <= max / 2 ? 0 : min, max: max};
  }

  function lineChart(data) {
    // An exact zero has no logarithm: it is drawn at the bottom of the axis, and the tooltip shows the true
    // value.
    const height = y => data.logY && y < data.floor ? data.floor : y;
    return {
      type: "line",
      data: {
        datasets: data.series.map((series, i) => ({
          label: series.name,
          data: series.x.map((x, k) => ({x: x, y: height(series.y[k]), exact: series.y[k]})),
          borderWidth: 2,
          clip: 4,
          borderDash: dashOf(series, i),
          pointRadius: data.markers || series.x.length === 1 ? 3 : 0,
          pointHoverRadius: 4,
          pointHitRadius: 8
        }))
      },
      options: {
        animation: false,
        responsive: true,
        maintainAspectRatio: false,
        interaction: {mode: "nearestOfEach", intersect: false},
        scales: {
          x: Object.assign(axisOptions(data.xLabel, data.logX), extent(data)),
          y: axisOptions(data.yLabel, data.logY)
        },
        plugins: {
          legend: {display: false},
          tooltip: {
            borderWidth: 1, padding: 10, boxWidth: 10, boxHeight: 2, boxPadding: 4, caretPadding: 14,
            itemSort: (a, b) => b.raw.exact - a.raw.exact,
            callbacks: {
              title: items => items.length ? (data.xLabel ? data.xLabel + " " : "") + short(items[0].raw.x) : "",
              label: item => item.dataset.label + ": " + short(item.raw.exact)
            }
          }
        }
      },
      plugins: [crosshair]
    };
  }

  function barChart(data, width) {
    const total = row => data.parts.reduce((sum, part) => sum + part.values[row], 0);
    const across = axisOptions(data.xLabel, false), down = axisOptions("", false);
    // Long names of rows are broken into several lines on narrow screens.
    const name = row => width < 600 ? data.rows[row].split(" \u00b7 ") : data.rows[row];
    Object.assign(down, {type: "category", stacked: true, grid: {display: false}});
    Object.assign(down.ticks, {autoSkip: false, callback: name});
    return {
      type: "bar",
      data: {
        labels: data.rows,
        datasets: data.parts.map(part => ({label: part.name, data: part.values, maxBarThickness: 22}))
      },
      options: {
        animation: false,
        responsive: true,
        maintainAspectRatio: false,
        indexAxis: "y",
        interaction: {mode: "index", axis: "y", intersect: false},
        scales: {x: Object.assign(across, {stacked: true}), y: down},
        plugins: {
          legend: {display: false},
          tooltip: {
            borderWidth: 1, padding: 10, boxWidth: 10, boxHeight: 10, boxPadding: 4,
            callbacks: {
              label: item => item.dataset.label + ": " + short(item.raw) + " (" +
                (100 * item.raw / (total(item.dataIndex) || 1)).toFixed(1) + " %)"
            }
          }
        }
      }
    };
  }
  // The parts of a bar chart as series, for the legend and the CSV file.
  function withSeries(data) {
    if (!data.rows) return data;
    const series = data.parts.map(part => ({name: part.name, x: data.rows, y: part.values}));
    return Object.assign(data, {series: series, yLabel: data.xLabel});
  }

  function draw(figure) {
    const views = [...figure.querySelectorAll(".chart-data")].map(node => withSeries(JSON.parse(node.textContent)));
    const choices = figure.querySelector(".views"), canvas = figure.querySelector("canvas");
    const hidden = new Set();
    let data = null, chart = null;
    function show(view) {
      if (chart) chart.destroy();
      data = views[view];
      chart = new Chart(canvas, painted(data.rows ? barChart(data, figure.clientWidth) : lineChart(data)));
      addLegend(figure, data, chart, hidden);
      chart.update("none");
      if (choices) [...choices.children].forEach((c, k) => c.setAttribute("aria-pressed", String(k === view)));
    }
    if (choices) views.forEach((view, k) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(view.xLabel);
      button.addEventListener("click", () => show(k));
      choices.append(button);
    });
    show(0);
    figure.querySelector(".save").addEventListener("click", () => saveCsv(data));
    darkness.addEventListener("change", () => show(views.indexOf(data)));
    addEventListener("beforeprint", () => chart.resize());
  }

  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  document.querySelectorAll("figure.chart").forEach(draw);
})();
)js";
}

}  // namespace starling::report
