(() => {
  "use strict";
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const themes = JSON.parse(document.getElementById("themes").textContent);
  const wanted = window.matchMedia("(prefers-color-scheme: dark)");
  const shown = new Map();
  let printing = false;

  const dark = () => wanted.matches && !printing;

  function narrowed(config, width) {
    // Names beside the bars leave the larger part of a narrow chart to the bars.
    const limit = width < 560 ? Math.max(90, width * 0.34) : 260;
    return { ...config, axisY: { labelLimit: limit } };
  }

  function fitted(spec, width) {
    const made = structuredClone(spec);
    const parts = [made, ...(made.layer || [])];
    for (const part of parts) {
      const y = part.encoding && part.encoding.y;
      if (y && y.axis && y.axis.labelLimit && width < 560) y.axis.labelLimit = Math.max(90, width * 0.34);
    }
    return made;
  }

  async function draw(place) {
    const views = charts[place.dataset.chart];
    const view = views[shown.get(place) || 0];
    const config = narrowed(themes[dark() ? "dark" : "light"], place.clientWidth);
    const old = place.view;
    const made = await vegaEmbed(place, fitted(view, place.clientWidth), {
      renderer: "svg", actions: false, config, tooltip: { theme: dark() ? "dark" : "light" },
    });
    if (old) old.finalize();
    place.view = made;
    place.dataset.drawn = "yes";
  }

  function drawAll() {
    document.documentElement.classList.toggle("dark", dark());
    return Promise.all([...document.querySelectorAll(".chart")].map(draw));
  }

  for (const set of document.querySelectorAll(".views")) {
    set.addEventListener("change", (event) => {
      const place = document.getElementById(set.dataset.of);
      shown.set(place, Number(event.target.value));
      draw(place);
    });
  }
  wanted.addEventListener("change", drawAll);
  window.addEventListener("beforeprint", () => { printing = true; drawAll(); });
  window.addEventListener("afterprint", () => { printing = false; drawAll(); });
  let width = window.innerWidth;
  let timer = 0;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    clearTimeout(timer);
    timer = setTimeout(drawAll, 150);
  });
  drawAll().then(() => { document.documentElement.dataset.drawn = "yes"; });
})();
