package mirror

import "slices"

// maxRuns bounds the memory of one partition's index: 24 bytes a run.
const maxRuns = 4096

// run is n records that follow one another on both sides.
type run struct{ from, to, n int64 }

// index pairs the offsets of records on one side with those of the same records
// on the other. Both grow. Offsets have gaps on either side: control records,
// aborted ones, records that compaction took, records of others.
type index struct {
	// floor: every record at or above it is in the index.
	floor int64
	runs  []run
}

// add appends a pair, which is above all before.
func (x *index) add(from, to int64) { x.append(run{from, to, 1}) }

func (x *index) append(r run) {
	if n := len(x.runs); n > 0 {
		last := &x.runs[n-1]
		if r.from == last.from+last.n && r.to == last.to+last.n {
			last.n += r.n
			return
		}
		if n == maxRuns {
			// The older half: what is asked for is nearly always near the end.
			gone := x.runs[n/2-1]
			x.floor = gone.from + gone.n
			x.runs = append(x.runs[:0], x.runs[n/2:]...)
		}
	}
	x.runs = append(x.runs, r)
}

// join appends all of a younger index.
func (x *index) join(younger *index) {
	for _, r := range younger.runs {
		x.append(r)
	}
}

// ceil is the other side of the first record at or above an offset.
func (x *index) ceil(from int64) (int64, bool) {
	i, _ := slices.BinarySearchFunc(x.runs, from, func(r run, from int64) int {
		if r.from+r.n <= from {
			return -1
		}
		return 1
	})
	if i == len(x.runs) {
		return 0, false
	}
	r := x.runs[i]
	return r.to + max(0, from-r.from), true
}

// below is the other side of the last record below an offset.
func (x *index) below(from int64) (int64, bool) {
	i, _ := slices.BinarySearchFunc(x.runs, from, func(r run, from int64) int {
		if r.from < from {
			return -1
		}
		return 1
	})
	if i == 0 {
		return 0, false
	}
	r := x.runs[i-1]
	return r.to + min(r.n, from-r.from) - 1, true
}

// turned is the index the other way round: it has all from its first record on.
func (x *index) turned() *index {
	out := &index{runs: make([]run, 0, len(x.runs))}
	for _, r := range x.runs {
		out.runs = append(out.runs, run{r.to, r.from, r.n})
	}
	return out
}

// first is the other side of the first record.
func (x *index) first() (int64, bool) {
	if len(x.runs) == 0 {
		return 0, false
	}
	return x.runs[0].to, true
}

// end is the other side's position after the last record.
func (x *index) end() (int64, bool) {
	if len(x.runs) == 0 {
		return 0, false
	}
	last := x.runs[len(x.runs)-1]
	return last.to + last.n, true
}
