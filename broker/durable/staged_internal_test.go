package durable

import (
	"testing"
)

// What the journal's entries add up to, where the order of events is unusual.
func TestStagedTransactionsFromEntries(t *testing.T) {
	stage := func(epoch int16, offset int64) journalEntry {
		return journalEntry{Kind: kindStage, PID: 1, Epoch: epoch, Group: "g", Offsets: []stagedOffset{{Topic: "t", Offset: offset}}}
	}
	other := func(kind string, epoch int16) journalEntry {
		return journalEntry{Kind: kind, PID: 1, Epoch: epoch, Version: 4}
	}
	elsewhere := stage(0, 5)
	elsewhere.Offsets[0].Partition = 3
	for name, c := range map[string]struct {
		entries []journalEntry
		want    map[int32]int64 // offset by partition
		ending  bool
	}{
		"the last offset of a partition counts":              {[]journalEntry{stage(0, 1), stage(0, 2)}, map[int32]int64{0: 2}, false},
		"an end that was refused changes nothing":            {[]journalEntry{stage(0, 1), other(kindEnding, 0), other(kindVoid, 0)}, map[int32]int64{0: 1}, false},
		"an end without answer keeps the offsets":            {[]journalEntry{stage(0, 1), other(kindEnding, 0)}, map[int32]int64{0: 1}, true},
		"what is staged after it is of the next transaction": {[]journalEntry{stage(0, 1), other(kindEnding, 0), elsewhere}, map[int32]int64{3: 5}, false},
		"an ended transaction is gone":                       {[]journalEntry{stage(0, 1), other(kindEnding, 0), other(kindEnded, 0)}, nil, false},
		"the next epoch begins anew":                         {[]journalEntry{stage(0, 1), stage(1, 2)}, map[int32]int64{0: 2}, false},
		"a late note of an older epoch is ignored":           {[]journalEntry{stage(1, 2), stage(0, 1), other(kindEnded, 0)}, map[int32]int64{0: 2}, false},
		"an end of another epoch is ignored":                 {[]journalEntry{stage(1, 2), other(kindEnding, 9)}, map[int32]int64{0: 2}, false},
		"an end of nothing staged is noted":                  {[]journalEntry{other(kindEnding, 3)}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			txns := make(stagedTxns)
			for _, e := range c.entries {
				txns.apply(e, keepTopicID)
			}
			got := make(map[int32]int64)
			ending := false
			if x := txns[1]; x != nil {
				ending = x.ending != nil
				x.each(func(at groupKey, o offsetOf) { got[at.partition] = o.Offset })
			}
			if len(got) != len(c.want) || ending != c.ending {
				t.Fatalf("got %v, ending %t; want %v, %t", got, ending, c.want, c.ending)
			}
			for partition, offset := range c.want {
				if got[partition] != offset {
					t.Errorf("partition %d has %d, want %d", partition, got[partition], offset)
				}
			}
		})
	}
}
