// The tables of the page.

const $ = id => document.getElementById(id);

const text = (id, value) => { if ($(id).textContent !== value) $(id).textContent = value; };

function element(name, properties, ...children) {
  const e = Object.assign(document.createElement(name), properties);
  e.append(...children);
  return e;
}

function cell(value, className = "") {
  return element("td", { className }, value);
}

function tipped(node, tip) {
  if (tip) {
    node.dataset.tip = tip;
    node.dataset.key = node.textContent;
    node.tabIndex = 0;
  }
  return node;
}

// fill replaces the rows of a table's body. What has the focus keeps it, by its data-key.
function fill(table, rows) {
  const key = table.contains(document.activeElement) && document.activeElement.dataset.key;
  table.tBodies[0].replaceChildren(...rows.map(cells => element("tr", {}, ...cells)));
  if (key) table.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
}

function bar(share) {
  const b = element("span", { className: "bar" });
  b.style.width = Math.max(share > 0 ? 2 : 0, 100 * share) + "px";
  return b;
}

const rateCell = (n, bad) => cell(count(n), bad && n > 0 ? "bad" : "");

const shownErrors = 8;

function drawErrors(before, now) {
  const all = errorsOf(before, now);
  fill($("errors"), all.slice(0, shownErrors).map(e => [cell(e.code, "name"), cell(e.listener, "name"), rateCell(e.rate, true), cell(whole(e.all))]));
  const more = all.length - shownErrors;
  text("errors-note", !all.length ? "None since the start." : more > 0 ? `And ${more} more: see /stats.` : "");
}

// gateTips say why each gate stops a hedge; see docs/hedging.md.
const gateTips = {
  not_idempotent: "The request may not be sent twice: its method, or idempotent of the route.",
  cascade: "The request is a hedge or retry of its caller.",
  no_endpoint: "No other endpoint is free of stalls and has spare capacity.",
  deadline: "The time that is left does not cover a median response.",
  correlated: "Most endpoints are silent: another would be as slow.",
  periodic: "Most endpoints are about to be silent, as they are periodically.",
  concurrency: "Too many hedges are in flight.",
  useless: "The last hedges saved hardly anything.",
  budget: "The budget of hedges and retries is spent.",
};

function drawGates(points, services) {
  const sums = {};
  for (const p of points) for (const [gate, n] of Object.entries(p.gates)) sums[gate] = (sums[gate] || 0) + n;
  const most = Math.max(...Object.values(sums), 1);
  fill($("gates"), Object.keys(sums).sort((a, b) => sums[b] - sums[a] || a.localeCompare(b)).map(gate =>
    [tipped(cell(gate, "name"), gateTips[gate]), cell(element("span", {}, bar(sums[gate] / most), whole(sums[gate])), "left")]));
  text("verdicts", verdicts(points.now, services).join("\n"));
}

// sourceText says how a source of endpoints does.
function sourceText(s, ago) {
  const kept = s.kept ? `; ${s.kept} endpoints stay in use` : "";
  if (s.up) return `up, since ${ago(s.since)}, ${s.services} services${kept}`;
  return s.code ? `down, since ${ago(s.since)} (${s.code}): ${s.error}${kept}` : `no response, since ${ago(s.since)}`;
}

function drawSources(now) {
  const c = now.config, ago = since => duration((Date.now() - new Date(since)) / 1000) + " ago";
  const reloads = Object.entries(c.reloads).filter(([, n]) => n > 0).sort();
  const refused = reloads.filter(([outcome]) => outcome !== "applied" && outcome !== "unchanged");
  const rows = [
    ["in use", `generation ${c.generation}, since ${ago(c.since)}`],
    ["reloads", reloads.map(([outcome, n]) => `${n} ${outcome}`).join(", ") || "none", refused.length ? "bad" : ""],
  ];
  const o = c.overlay;
  if (o) rows.push(["overlay", o.revision ? `revision ${o.revision}, since ${ago(o.since)}` : "none"]);
  if (o?.code) rows.push(["overlay refused", `revision ${o.refused} (${o.code}): ${o.reason}`, "bad"]);
  if (c.refused) rows.push(["last refused", `${c.refused.code}, ${ago(c.refused.at)}: ${c.refused.reason}`, "bad"]);
  for (const s of now.sources) rows.push([s.name, sourceText(s, ago), s.up ? "" : "bad"]);
  if (!now.sources.length) rows.push(["registry", "none"]);
  rows.push(["memory", `${bytes(now.buffered_bytes)} of ${bytes(now.buffered_limit_bytes)}`]);
  fill($("sources"), rows.map(([name, value, className = ""]) => [cell(name, "name muted"), cell(value, "text " + className)]));
}

const broken = new Set(["failing", "unhealthy", "ejected"]);

const stateCell = state => cell(state, "state " + state.replaceAll(" ", "-"));

function serviceState(s, d) {
  if (!s.endpoints_known) return "no endpoint";
  if (d.requests > 0 && d.failed === d.requests || s.endpoints.every(e => broken.has(e.state))) return "failing";
  if (s.panic) return "panic";
  return Object.values(s.outcomes).some(n => n > 0) ? "ok" : "idle";
}

function drawServices(before, now, chosen, choose) {
  const of = (n, limit) => limit ? `${n} of ${limit}` : String(n);
  const rows = [], refused = grown(unrouted(now), unrouted(before)) / (now.uptime_seconds - before.uptime_seconds);
  if (unrouted(now)) {
    rows.push([tipped(cell("no service", "name muted"), "Requests that were refused before they had a service."), stateCell(refused ? "refused" : "idle"),
      rateCell(refused), cell("–", "more"), cell("–"), rateCell(refused, true), ...Array.from({ length: 7 }, () => cell("–", "more"))]);
  }
  for (const name of Object.keys(now.services).sort()) {
    const s = now.services[name], d = counted(before, now, [name], false), q = share => time(quantile(d.latency, now.bounds_seconds, share));
    const button = element("button", { type: "button", className: "link", textContent: name, onclick: () => choose(name) });
    button.dataset.key = name;
    button.setAttribute("aria-pressed", chosen === name);
    const good = s.endpoints.filter(e => !broken.has(e.state)).length + s.endpoints_known - s.endpoints.length;
    rows.push([cell(button, "name"), stateCell(serviceState(s, d)), rateCell(d.requests / d.seconds), cell(q(0.5), "more"), cell(q(0.99)),
      rateCell(d.failed / d.seconds, true), cell(percent(Math.max(0, d.sent - d.missed), d.requests), "more"), cell(count(d.retries / d.seconds), "more"),
      cell(of(s.pending, s.pending_limit), "more"), cell(of(s.slots, s.slots_limit), "more"), cell(String(s.queued), "more"),
      cell(`${good} of ${s.endpoints_known}`, good < s.endpoints_known ? "more bad" : "more"), cell(s.source || "–", "more")]);
  }
  text("services-note", String(Object.keys(now.services).length));
  fill($("services"), rows);
}

// endpointColumns are the columns of the table of endpoints: title, key to sort by, class, tip.
const endpointColumns = [
  ["address", "address", "name"], ["service", "service", "name more"],
  ["state", "severity", "left", "idle: no attempt yet. unused: not in lb.subset. stalled: silent. failing: its last attempts failed."],
  ["pending", "pending", "left", "Attempts of this sidecar in flight at the endpoint."], ["attempts/s", "attempts", "more"], ["failed/s", "failed", ""],
  ["hedges/s", "hedges", "more"], ["latency", "latency", "", "Recent average of this sidecar, the longest of all loops."],
  ["connections", "connections", "more"], ["load of others", "reported", "more", "Requests of other consumers at the endpoint, as its sidecar reports them."],
];
const severities = ["idle", "ok", "unused", "stalled", "failing", "unhealthy", "ejected"];

// Endpoints are the rows of the table: filtered, sorted, and grouped by service and state if there are many.
class Endpoints {
  static ungrouped = 20; // as many rows have no groups
  static shown = 100;    // of a group

  constructor(redraw) {
    this.sort = "severity";
    this.down = true;
    this.open = new Map(); // what the reader opened or closed
    this.redraw = redraw;
    $("filter").addEventListener("input", redraw);
    $("endpoints").tHead.rows[0].replaceChildren(...endpointColumns.map(([title, key, className, tip]) => {
      const button = element("button", { type: "button", textContent: title, onclick: () => this.sortBy(key) });
      return element("th", { className, scope: "col" }, tipped(button, tip));
    }));
  }

  sortBy(key) {
    this.down = this.sort === key ? !this.down : !["address", "service"].includes(key);
    this.sort = key;
    this.redraw();
  }

  rows(before, now, services) {
    const seconds = now.uptime_seconds - before.uptime_seconds, rows = [];
    for (const service of services) {
      const was = new Map((before.services[service]?.endpoints || []).map(e => [e.address, e]));
      for (const e of now.services[service].endpoints) {
        const old = was.get(e.address) || e, rate = key => Math.max(0, e[key] - old[key]) / seconds;
        rows.push({
          address: e.address, service, state: e.state, severity: severities.indexOf(e.state), pending: e.pending, attempts: rate("attempts"),
          failed: rate("failed"), hedges: rate("hedges"), latency: e.latency_ms || null, connections: e.connections,
          reported: e.reported ?? null, why: e.ejected,
        });
      }
    }
    return rows;
  }

  compare(a, b) {
    const x = a[this.sort] ?? -1, y = b[this.sort] ?? -1;
    const by = typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
    return (this.down ? -by : by) || b.severity - a.severity || b.failed - a.failed || b.pending - a.pending || a.address.localeCompare(b.address, undefined, { numeric: true });
  }

  draw(before, now, services) {
    const all = this.rows(before, now, services), want = $("filter").value.trim().toLowerCase();
    const found = all.filter(e => `${e.address} ${e.service} ${e.state}`.toLowerCase().includes(want)).sort((a, b) => this.compare(a, b));
    const known = services.reduce((sum, name) => sum + now.services[name].endpoints_known, 0);
    const listed = all.length < known ? `, ${all.length} listed` : "";
    text("endpoints-note", (want ? `${found.length} of ${known}` : String(known)) + listed);
    [...$("endpoints").tHead.rows[0].cells].forEach((th, i) => {
      const sorted = endpointColumns[i][1] === this.sort;
      th.ariaSort = sorted ? this.down ? "descending" : "ascending" : "none";
    });
    const most = Math.max(...found.map(e => e.pending), 1);
    fill($("endpoints"), found.length <= Endpoints.ungrouped ? found.map(e => this.row(e, most)) : this.groups(found, most));
    if (!found.length) fill($("endpoints"), [[Object.assign(cell(want ? "no endpoint matches" : "no endpoint is known", "name muted"), { colSpan: endpointColumns.length })]]);
  }

  row(e, most) {
    const state = tipped(stateCell(e.state), e.why && "ejected for " + e.why);
    return [
      cell(e.address, "name"), cell(e.service, "name more"), state, cell(element("span", {}, bar(e.pending / most), String(e.pending)), "left"),
      cell(count(e.attempts), "more"), rateCell(e.failed, true), cell(count(e.hedges), "more"), cell(time(e.latency === null ? null : e.latency / 1000)),
      cell(String(e.connections), "more"), cell(count(e.reported), "more"),
    ];
  }

  // groups are the rows of each service and state, below one row with their sums. Those with problems are open.
  groups(found, most) {
    const groups = new Map(), out = [];
    for (const e of found) {
      const key = e.service + " " + e.state;
      groups.has(key) || groups.set(key, []);
      groups.get(key).push(e);
    }
    for (const [key, list] of groups) {
      const first = list[0], open = this.open.get(key) ?? first.severity > 1;
      const sum = name => list.reduce((n, e) => n + (e[name] || 0), 0);
      const button = element("button", { type: "button", className: "link", textContent: `${list.length} endpoints` });
      button.dataset.key = key;
      button.ariaExpanded = open;
      button.onclick = () => { this.open.set(key, !open); this.redraw(); };
      const latency = Math.max(...list.map(e => e.latency || 0));
      out.push([cell(button, "name"), cell(first.service, "name more"), stateCell(first.state), cell(String(sum("pending")), "left"),
        cell(count(sum("attempts")), "more"), rateCell(sum("failed"), true), cell(count(sum("hedges")), "more"),
        cell(latency ? "≤ " + time(latency / 1000) : "–"), cell(String(sum("connections")), "more"), cell(count(sum("reported")), "more")]);
      if (!open) continue;
      out.push(...list.slice(0, Endpoints.shown).map(e => this.row(e, most)));
      if (list.length > Endpoints.shown) {
        out.push([Object.assign(cell(`and ${list.length - Endpoints.shown} more: use the filter`, "name muted"), { colSpan: endpointColumns.length })]);
      }
    }
    return out;
  }
}

function drawLoops(before, now) {
  const seconds = now.uptime_seconds - before.uptime_seconds;
  fill($("loops"), now.loops.map((loop, i) => {
    const old = before.loops[i], turns = loop.turn_counts.map((n, k) => n - old.turn_counts[k]);
    const total = turns.reduce((a, n) => a + n, 0);
    const at = q => time(quantile(turns, now.bounds_seconds, q));
    return [cell(String(i), "name"), cell(String(loop.connections), "more"), cell(whole(total / seconds)),
      cell(total ? count((loop.events - old.events) / total) : "–", "more"), cell(at(0.5), "more"), cell(at(0.99)), cell(at(1))];
  }));
}

// showTips shows the text in data-tip of what has the pointer or the focus, within the window.
function showTips() {
  const tip = $("tip");
  let owner = null;
  const show = e => {
    const at = e.target.closest?.("[data-tip]");
    if (at === owner) return;
    owner?.removeAttribute("aria-describedby");
    owner = at;
    tip.hidden = !at;
    if (!at) return;
    tip.textContent = at.dataset.tip;
    at.setAttribute("aria-describedby", "tip");
    const box = at.getBoundingClientRect(), room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = Math.max(8, Math.min(box.left, room)) + "px";
    const below = box.bottom + 6;
    tip.style.top = (below + tip.offsetHeight < innerHeight ? below : Math.max(0, box.top - tip.offsetHeight - 6)) + "px";
  };
  const hide = () => show({ target: document });
  addEventListener("pointerover", show);
  addEventListener("focusin", show);
  addEventListener("focusout", hide);
  addEventListener("scroll", hide, true);
  addEventListener("keydown", e => { if (e.key === "Escape") hide(); });
  for (const node of document.querySelectorAll("th[data-tip], .tiles [data-tip]")) node.tabIndex = 0;
}
