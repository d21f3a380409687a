// Small charts on canvases, in the colours of the style sheet.

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// surface is a canvas made ready to be drawn on anew, in CSS pixels.
function surface(canvas) {
  const ratio = devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
  }
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, w, h);
  c.font = "11px system-ui, sans-serif";
  return { c, w, h };
}

// ceiling is the next of 1, 2 and 5 times a power of ten.
function ceiling(x) {
  if (!(x > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(x));
  return [1, 2, 5, 10].find(k => k * unit >= x * 0.999) * unit;
}

// linear and logarithmic are scales: a value's height from 0 to 1, and where to
// draw lines.
function linear(values) {
  const top = ceiling(Math.max(...values, 0));
  return { at: v => v / top, ticks: [0, top / 2, top] };
}

function logarithmic(values) {
  const some = values.filter(v => v > 0);
  const low = Math.floor(Math.log10(Math.min(...some, 1e-3)));
  const high = Math.max(Math.ceil(Math.log10(Math.max(...some, 1e-3))), low + 1);
  const ticks = [];
  for (let e = low; e <= high; e++) ticks.push(10 ** e);
  return { at: v => (Math.log10(Math.max(v, 10 ** low)) - low) / (high - low), ticks };
}

const left = 54, bottom = 16, above = 8;

// drawLines draws series, [{colour, values}] of numbers or null, at the times at, in seconds. The
// newest is at the right. Where more than gap seconds have no number, a line breaks.
function drawLines(canvas, series, at, span, scaleOf, format) {
  const { c, w, h } = surface(canvas), gap = 20, now = at[at.length - 1];
  const scale = scaleOf(series.flatMap(s => s.values.filter(v => v !== null)));
  const y = v => above + (h - above - bottom) * (1 - scale.at(v));
  const x = i => w - 4 - (now - at[i]) * (w - left - 4) / span;
  c.strokeStyle = colour("--line");
  c.fillStyle = colour("--muted");
  c.textAlign = "right";
  c.textBaseline = "middle";
  for (const tick of scale.ticks) {
    c.beginPath();
    c.moveTo(left, y(tick));
    c.lineTo(w, y(tick));
    c.stroke();
    c.fillText(format(tick), left - 6, y(tick));
  }
  c.textBaseline = "bottom";
  c.fillText("now", w, h);
  c.textAlign = "left";
  c.fillText(`${span / 60} min ago`, left, h);
  c.lineWidth = 1.6;
  c.lineJoin = "round";
  for (const s of series) {
    c.strokeStyle = colour(s.colour);
    c.beginPath();
    let last = -1;
    s.values.forEach((v, i) => {
      if (v === null || now - at[i] > span) return;
      const alone = last < 0 || at[i] - at[last] > gap;
      if (alone) c.moveTo(x(i) - 1, y(v)); // so that one number shows
      c.lineTo(x(i), y(v));
      last = i;
    });
    c.stroke();
  }
  c.lineWidth = 1;
}

// drawBars draws one bar for each value, or for the highest of those that share a
// pixel. mark, [from, to], is shaded.
function drawBars(canvas, values, name, top, format, mark) {
  const { c, w, h } = surface(canvas);
  const plot = h - 14;
  if (mark) {
    c.fillStyle = colour("--shade");
    c.fillRect(mark[0] * w / values.length, 14, (mark[1] - mark[0]) * w / values.length, plot);
  }
  c.fillStyle = colour("--line");
  c.fillRect(0, h - 1, w, 1);
  c.fillStyle = colour(name);
  const columns = Math.min(values.length, Math.floor(w)), width = w / columns;
  for (let i = 0; i < columns; i++) {
    const from = Math.floor(i * values.length / columns), to = Math.floor((i + 1) * values.length / columns);
    let v = 0;
    for (let k = from; k < to; k++) v = Math.max(v, values[k]);
    if (v > 0) {
      const tall = Math.max(1, plot * Math.min(1, v / top));
      c.fillRect(i * width, h - tall, Math.max(1, width - (width > 3 ? 1 : 0)), tall);
    }
  }
  c.fillStyle = colour("--muted");
  c.textAlign = "right";
  c.textBaseline = "top";
  c.fillText(format(top), w, 1);
}
