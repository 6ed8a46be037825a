package mirror

import (
	"testing"

	"pgregory.net/rapid"
)

// pair is a mirrored record.
type pair struct{ from, to int64 }

// history draws a source's log with gaps (markers, aborted records, what
// compaction took) and where a mirror put its records, with gaps there too.
func history(t *rapid.T) (pairs []pair, end int64) {
	from, to := int64(0), int64(0)
	for range rapid.IntRange(0, 60).Draw(t, "records") {
		from += int64(rapid.IntRange(0, 3).Draw(t, "source gap"))
		to += int64(rapid.SampledFrom([]int{0, 0, 0, 1, 5}).Draw(t, "target gap"))
		pairs = append(pairs, pair{from, to})
		from, to = from+1, to+1
	}
	return pairs, from + int64(rapid.IntRange(0, 2).Draw(t, "tail"))
}

// expected is the translation by its definition.
func expected(pairs []pair, offset, empty int64) int64 {
	for _, p := range pairs {
		if p.from >= offset {
			return p.to
		}
	}
	if len(pairs) == 0 {
		return empty
	}
	return pairs[len(pairs)-1].to + 1
}

// A source offset becomes the place of the first mirrored record at or above it,
// whether that was mirrored before this instance began (and is found by a
// search), since, or in the transaction that is running. Where nothing follows
// it is after the last, and no other record is between.
func TestForwardIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pairs, end := history(t)
		began := rapid.IntRange(0, len(pairs)).Draw(t, "mirrored before")
		running := rapid.IntRange(began, len(pairs)).Draw(t, "committed")
		floor := end
		if began < len(pairs) {
			floor = pairs[began].from
		}
		// The end of the target's log when the instance began.
		known := int64(0)
		if began > 0 {
			known = pairs[began-1].to + 1
			if began == len(pairs) || pairs[began].to > known {
				known += int64(rapid.IntRange(0, 1).Draw(t, "marker"))
			}
		}
		there, staged := index{floor: floor}, index{}
		for _, p := range pairs[began:running] {
			there.add(p.from, p.to)
		}
		for _, p := range pairs[running:] {
			staged.add(p.from, p.to)
		}
		offset := int64(rapid.IntRange(0, int(end)).Draw(t, "offset"))
		got, err := forward(&there, &staged, known, offset, func(below int64) (int64, bool, error) {
			return bisect(0, below, func(from, to int64) (int64, bool, bool, error) {
				for _, p := range pairs[:began] {
					if p.to >= from && p.to < to {
						return p.to, p.from >= offset, true, nil
					}
				}
				return 0, false, false, nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		want := expected(pairs, offset, known)
		if began == len(pairs) && (began == 0 || offset > pairs[began-1].from) {
			want = known // a marker may lie between, and no record
		}
		if got != want {
			t.Fatalf("offset %d of %v (%d before, %d committed) became %d, want %d", offset, pairs, began, running, got, want)
		}
	})
}

// The index forgets its older half when it is full, says so by its floor, and
// answers exactly above it.
func TestIndexKeepsTheEnd(t *testing.T) {
	var x index
	var pairs []pair
	for i := range int64(3 * maxRuns) {
		p := pair{2 * i, 3 * i} // no two follow one another on both sides
		pairs = append(pairs, p)
		x.add(p.from, p.to)
	}
	if len(x.runs) > maxRuns {
		t.Fatalf("%d runs", len(x.runs))
	}
	for _, p := range pairs {
		if p.from < x.floor {
			continue
		}
		if to, ok := x.ceil(p.from); !ok || to != p.to {
			t.Fatalf("%d became %d, %v, want %d", p.from, to, ok, p.to)
		}
		if to, ok := x.below(p.from + 1); !ok || to != p.to {
			t.Fatalf("below %d is %d, %v, want %d", p.from+1, to, ok, p.to)
		}
	}
	if first, _ := x.first(); x.floor != x.runs[0].from-1 || first != x.runs[0].to {
		t.Errorf("floor %d, first run %v", x.floor, x.runs[0])
	}
	if end, _ := x.end(); end != pairs[len(pairs)-1].to+1 {
		t.Errorf("end %d", end)
	}
}

func TestIndexAnswersLikeAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pairs, end := history(t)
		var x, younger index
		cut := rapid.IntRange(0, len(pairs)).Draw(t, "cut")
		for _, p := range pairs[:cut] {
			x.add(p.from, p.to)
		}
		for _, p := range pairs[cut:] {
			younger.add(p.from, p.to)
		}
		x.join(&younger)
		for offset := range end + 2 {
			up, anyUp := int64(0), false
			down, anyDown := int64(0), false
			for _, p := range pairs {
				if p.from >= offset && !anyUp {
					up, anyUp = p.to, true
				}
				if p.from < offset {
					down, anyDown = p.to, true
				}
			}
			if got, ok := x.ceil(offset); ok != anyUp || got != up {
				t.Fatalf("ceil(%d) of %v is %d, %v", offset, pairs, got, ok)
			}
			if got, ok := x.below(offset); ok != anyDown || ok && got != down {
				t.Fatalf("below(%d) of %v is %d, %v", offset, pairs, got, ok)
			}
		}
	})
}

// Two logs of one topic under the identity policy: each holds its own records
// and the other's in some interleaving. Below the translated offset the group
// has read every record, whatever it had read on the source.
func TestBothWaysLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type rec struct {
			own    bool // of the target
			number int
		}
		interleave := func(name string) (log []rec) {
			own, other := 0, 0
			n := rapid.IntRange(0, 20).Draw(t, name+" own")
			m := rapid.IntRange(0, 20).Draw(t, name+" other")
			for own < n || other < m {
				if other == m || own < n && rapid.Bool().Draw(t, name) {
					log, own = append(log, rec{true, own}), own+1
				} else {
					log, other = append(log, rec{false, other}), other+1
				}
			}
			return log
		}
		source, target := interleave("source"), interleave("target")
		offset := rapid.IntRange(0, len(source)).Draw(t, "offset")
		read := map[rec]bool{}
		for _, r := range source[:offset] {
			read[r] = true
		}
		place := map[rec]int64{}
		for i, r := range target {
			place[r] = int64(i)
		}
		var there, back index
		last := int64(0)
		for i, r := range source {
			to, mirrored := place[r]
			switch {
			case !mirrored && !r.own:
				offset = min(offset, i) // not mirrored yet: the mirror's position is here
			case !r.own:
				there.add(int64(i), to)
				last = to + 1
			case mirrored:
				back.add(int64(i), to)
			}
		}
		x, err := forward(&there, &index{}, last, int64(offset), nil)
		if err != nil {
			t.Fatal(err)
		}
		if to, ok := back.below(int64(offset)); ok {
			x = min(x, to+1)
		} else {
			x = 0
		}
		for _, r := range target[:x] {
			if !read[r] {
				t.Fatalf("source %v read to %d, target %v from %d: %v is lost", source, offset, target, x, r)
			}
		}
	})
}
