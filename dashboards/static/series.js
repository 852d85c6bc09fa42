"use strict";
// Draws a series: all samples as dots, the headline as a line. The data stands in the page as JSON.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const place = document.getElementById("plot");
  if (!window.Plotly || !place) return;
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const times = [], values = [];
  data.samples.forEach((samples, night) => samples.forEach((value) => { times.push(data.time[night]); values.push(value); }));
  const traces = [
    { x: times, y: values, name: "samples", mode: "markers", type: "scattergl", marker: { size: 4, opacity: 0.5, color: colour("--sample") } },
    { x: data.time, y: data.headline, name: "headline", mode: "lines+markers", type: "scattergl", line: { color: colour("--accent") }, marker: { size: 5 } },
  ];
  const layout = {
    xaxis: { type: "date", title: { text: "time (UTC)" }, gridcolor: colour("--line") },
    yaxis: { rangemode: "tozero", title: { text: `${data.label} (${data.unit})` }, gridcolor: colour("--line") },
    paper_bgcolor: colour("--paper"), plot_bgcolor: colour("--paper"), font: { color: colour("--ink") },
    margin: { t: 16, r: 16 }, legend: { orientation: "h" }, hovermode: "closest",
  };
  place.classList.add("drawn");
  document.getElementById("drawn").hidden = true;
  window.Plotly.newPlot(place, traces, layout, { responsive: true, displaylogo: false });
})();
