package bench

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Failure is that a row could not be measured in a round.
type Failure struct {
	Round int    `json:"round"`
	Row   string `json:"row"`
	Why   string `json:"why"` // with the end of a log
}

// preface says how it was measured, in sentences.
func (r *Report) preface() []string {
	closed := "wrk"
	if r.Tools[Wrk] == "" {
		closed = "the lab's own load"
	}
	replica := "the lab's own (remora-lab replica --mode fast)"
	if r.Tools[Backend] != "" {
		replica = "the program backend of the peers' folder"
	}
	said := []string{
		fmt.Sprintf("POST of 300 bytes, answer of 200, keep-alive; median [min..max] of %d rounds, ratios round by round.", r.Rounds),
		fmt.Sprintf("%s. One worker per proxy; load, proxies and replica share the machine. The replica is %s.", r.Machine, replica),
		"CPU is the scheduler's run time of all threads of a row's proxies; its split into user and system is sampled by " +
			"the kernel's tick. Closed loops are made by " + closed + "; open loops by the lab's load, whose latencies count " +
			"from the intended send times. RSS is after the load, and has in it what the loads before left behind.",
		r.watched(),
	}
	for _, p := range slices.Sorted(maps.Keys(r.Missing)) {
		said = append(said, fmt.Sprintf("Without %s: %s.", p, r.Missing[p]))
	}
	said = append(said, r.failed()...)
	refused := r.refused()
	for _, row := range slices.Sorted(maps.Keys(refused)) {
		said = append(said, fmt.Sprintf("%s: %s.", row, refused[row]))
	}
	return said
}

// watched says what was done about processors that stood still.
func (r *Report) watched() string {
	if r.Unwatched != "" {
		return "Nobody watched whether processors stood still (" + brief(r.Unwatched) + "): what a host that was busy did to the figures does not show."
	}
	return fmt.Sprintf("All loads were watched for moments in which a processor stood still: stopped %% is at least their share of the "+
		"time, disturbed %% that of an open loop's requests which were due in one or close to it. An open loop's latencies are those of its "+
		"other requests, and where fewer than %d%% are left there are none; a closed loop's are those of all. A load that was stopped "+
		"for more than %d%% of its time was measured again, up to %d times, and the least stopped counts (%d were in all).",
		100-tooDisturbed, tooRestless, r.Repeats, r.Samples.repeats())
}

// failed names the rows that could not be measured, each with the reason of the first
// time.
func (r *Report) failed() (said []string) {
	rounds, why := map[string][]string{}, map[string]string{}
	for _, f := range r.Failures {
		if why[f.Row] == "" {
			why[f.Row] = f.Why
		}
		rounds[f.Row] = append(rounds[f.Row], fmt.Sprint(f.Round))
	}
	for _, row := range r.Rows {
		if why[row] != "" {
			said = append(said, fmt.Sprintf("%s failed in round %s: %s", row, strings.Join(rounds[row], ", "), brief(strings.TrimPrefix(why[row], "bench: row "+row+": "))))
		}
	}
	return said
}

// brief is a text on one line, and not for ever.
func brief(text string) string {
	const most = 300
	line := []rune(strings.Join(strings.Fields(text), " "))
	if len(line) > most {
		return string(line[:most]) + "…"
	}
	return string(line)
}

// refused says, for each row that has some, how many requests failed, and how many
// loads had no answer at all.
func (r *Report) refused() map[string]string {
	type count struct{ requests, loads int64 }
	counts := map[string]count{}
	for _, s := range r.Samples {
		n := counts[s.Row]
		n.requests += s.Errors
		if s.Requests == 0 {
			n.loads++
		}
		counts[s.Row] = n
	}
	said := map[string]string{}
	for row, n := range counts {
		if n != (count{}) {
			said[row] = fmt.Sprintf("%d requests failed, %d loads had no answer", n.requests, n.loads)
		}
	}
	return said
}

// Check returns an error when a sidecar or the direct way failed, or a request through
// one of them, or when nothing was measured. What fails of another proxy is told in
// the report alone.
func (r *Report) Check() error {
	if len(r.Samples) == 0 {
		return fmt.Errorf("bench: nothing was measured: %s", strings.Join(r.failed(), "; "))
	}
	refused := r.refused()
	for _, row := range Rows() {
		if len(row.chain) > 0 && !row.sidecars() {
			continue
		}
		for _, f := range r.Failures {
			if f.Row == row.Name {
				return errors.New(f.Why)
			}
		}
		if said := refused[row.Name]; said != "" {
			return fmt.Errorf("bench: %s: %s", row.Name, said)
		}
	}
	return nil
}
