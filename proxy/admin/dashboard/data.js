// What comes from the sidecar, and what is made of it. /stats counts since the
// start; a rate is the difference of two answers.

// grown is what came to a count, which begins anew where a reload makes a new service
// of the same name.
const grown = (n, was = 0) => n < was ? n : n - was;

// unrouted counts the requests that were refused before they had a service.
const unrouted = answer => Object.values(answer.listeners).reduce((sum, l) => sum + l.unrouted, 0);

// counted is what grew from one answer to the next, over the services named; with all, also
// the requests that had no service.
function counted(before, now, names, all) {
  const d = {
    at: now.uptime_seconds, seconds: now.uptime_seconds - before.uptime_seconds, requests: 0, failed: 0, latency: [],
    sent: 0, won: 0, missed: 0, retries: 0, gates: {}, pending: 0, queued: 0,
  };
  for (const name of names) {
    const s = now.services[name], was = before.services[name];
    if (!s || !was) continue;
    for (const [outcome, n] of Object.entries(s.outcomes)) {
      const more = grown(n, was.outcomes[outcome]);
      d.requests += more;
      if (outcome === "5xx" || outcome === "failed") d.failed += more;
    }
    s.latency_counts.forEach((n, i) => { d.latency[i] = (d.latency[i] || 0) + grown(n, was.latency_counts[i]); });
    d.sent += grown(s.hedges.sent, was.hedges.sent);
    d.won += grown(s.hedges.won, was.hedges.won);
    d.missed += grown(s.hedges.missed, was.hedges.missed);
    d.retries += grown(s.retries, was.retries);
    for (const [gate, n] of Object.entries(s.hedges.gates)) d.gates[gate] = (d.gates[gate] || 0) + grown(n, was.hedges.gates[gate]);
    d.pending += s.pending;
    d.queued += s.queued;
  }
  if (all) {
    const more = grown(unrouted(now), unrouted(before));
    d.requests += more;
    d.failed += more;
  }
  return d;
}

// pointOf is what the charts show of a difference.
function pointOf(d, bounds) {
  const q = share => quantile(d.latency, bounds, share);
  return {
    at: d.at, requests: d.requests / d.seconds, failed: d.failed / d.seconds, p50: q(0.5), p99: q(0.99), p999: q(0.999),
    hedges_sent: Math.max(0, d.sent - d.missed) / d.seconds, hedges_won: d.won / d.seconds,
  };
}

// pointsOf are the points of an answer of /history that end before a time. They cover 5 s each.
function pointsOf(history, before) {
  const keys = ["requests", "failed", "p50", "p99", "p999", "hedges_sent", "hedges_won"];
  return (history?.at || []).map((at, i) => {
    const p = { at };
    for (const key of keys) p[key] = history[key][i] < 0 ? null : history[key][i];
    return p;
  }).filter(p => p.at <= before);
}

// errorsOf are the error responses between two answers, the most frequent first.
function errorsOf(before, now) {
  const rows = [], seconds = now.uptime_seconds - before.uptime_seconds;
  for (const [listener, l] of Object.entries(now.listeners)) {
    for (const [code, all] of Object.entries(l.errors)) {
      rows.push({ listener: listener || "–", code, all, rate: grown(all, before.listeners[listener]?.errors[code]) / seconds });
    }
  }
  return rows.sort((a, b) => b.rate - a.rate || b.all - a.all || a.code.localeCompare(b.code));
}

// verdicts says for the three services with the most requests what hedging brings, or would bring, and which delay
// was chosen, and after these for all in which period their replicas stall together.
function verdicts(now, names) {
  const requests = name => Object.values(now.services[name].outcomes).reduce((a, n) => a + n, 0);
  const hedges = name => now.services[name].hedges;
  return names.filter(name => hedges(name).verdict).sort((a, b) => requests(b) - requests(a)).slice(0, 3)
    .flatMap(name => [hedges(name).verdict, hedges(name).choice].filter(Boolean).map(line => `${name}: ${line}`))
    .concat(names.map(name => hedges(name).periodic).filter(Boolean));
}

// quantile is that of a histogram, in seconds, straight within a bucket; null of
// nothing.
function quantile(counts, bounds, q) {
  const total = counts.reduce((a, n) => a + n, 0);
  if (total === 0) return null;
  let seen = 0;
  for (let i = 0; i < counts.length; i++) {
    if (counts[i] > 0 && seen + counts[i] >= q * total) {
      const low = i > 0 ? bounds[i - 1] : 0, high = i < bounds.length ? bounds[i] : low;
      return low + (high - low) * (q * total - seen) / counts[i];
    }
    seen += counts[i];
  }
  return bounds[bounds.length - 1];
}

// Timeline keeps the last milliseconds.
class Timeline {
  constructor(kept) {
    this.kept = kept;
    this.end = 0;
    this.arrivals = new Array(kept).fill(0);
    this.bytes = new Array(kept).fill(0);
    this.worst = new Array(kept).fill(0);
  }

  // take appends an answer of /milliseconds.
  take(answer) {
    const gap = Math.min(Math.max(answer.from - this.end, 0), this.kept);
    for (const [mine, more] of [[this.arrivals, answer.arrivals], [this.bytes, answer.bytes], [this.worst, answer.worst_us]]) {
      if (answer.end < this.end) mine.fill(0); // the sidecar was started anew
      else for (let i = 0; i < gap; i++) mine.push(0);
      mine.push(...more);
      mine.splice(0, mine.length - this.kept);
    }
    this.end = answer.end;
  }

  // busiest is where most requests arrived in one millisecond.
  busiest() {
    let at = 0;
    this.arrivals.forEach((n, i) => { if (n > this.arrivals[at]) at = i; });
    return at;
  }
}

// Texts for people.

const whole = n => n >= 1e6 ? (n / 1e6).toFixed(1) + "M" : n >= 1e4 ? (n / 1e3).toFixed(1) + "k" : String(Math.round(n));

const count = n => n === null ? "–" : n > 0 && n < 10 ? String(+n.toFixed(1)) : whole(n);

const percent = (part, all) => all ? (100 * part / all).toFixed(1) + " %" : "–";

function time(seconds) {
  if (seconds === null) return "–";
  const ms = seconds * 1000;
  if (ms < 1) return Math.round(ms * 1000) + " µs";
  if (ms < 1000) return (ms < 10 ? ms.toFixed(1) : Math.round(ms)).toString().replace(/\.0$/, "") + " ms";
  return (ms / 1000).toFixed(ms < 10000 ? 1 : 0).replace(/\.0$/, "") + " s";
}

const bytes = n => n < 1024 ? Math.round(n) + " B" : n < 1048576 ? (n / 1024).toFixed(1) + " KiB" : (n / 1048576).toFixed(1) + " MiB";

function duration(seconds) {
  const s = Math.floor(seconds), d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
  return d ? `${d} d ${h} h` : h ? `${h} h ${m} min` : m ? `${m} min ${s % 60} s` : `${s} s`;
}
