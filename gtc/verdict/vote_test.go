package verdict

import (
	"testing"

	"github.com/kafka-gtc/kafka-gtc/gtc"
)

func TestVoteForEachState(t *testing.T) {
	ref := gtc.ParticipantRef{ClusterID: "A", ProducerID: 7, ProducerEpoch: 3}
	for _, tc := range []struct {
		name    string
		v       View
		version int16
		want    gtc.VoteCode
	}{
		{"ongoing", View{"Ongoing", 7, 3, Unlimited, 1000, "t", 4}, EndTxnBumps, gtc.VotePrepared},
		{"ongoing, version 1", View{"Ongoing", 7, 3, Unlimited, 1000, "t", 4}, EndTxnKeeps, gtc.VotePrepared},
		{"only group offsets is not empty", View{"Ongoing", 7, 3, Unlimited, 1000, "__consumer_offsets", 9}, EndTxnBumps, gtc.VotePrepared},
		{"has a timeout", View{"Ongoing", 7, 3, Unlimited - 1, 1000, "t", 4}, EndTxnBumps, gtc.VoteRefused},
		{"no partitions", View{"Ongoing", 7, 3, Unlimited, 1000, "", 0}, EndTxnBumps, gtc.VoteRefused},
		{"another epoch", View{"Ongoing", 7, 4, Unlimited, 1000, "t", 4}, EndTxnBumps, gtc.VoteRefused},
		{"another producer id", View{"Ongoing", 8, 3, Unlimited, 1000, "t", 4}, EndTxnBumps, gtc.VoteRefused},
		{"empty", View{"Empty", 7, 3, Unlimited, -1, "", 0}, EndTxnBumps, gtc.VoteRefused},
		{"empty, version 1", View{"Empty", 7, 3, Unlimited, -1, "", 0}, EndTxnKeeps, gtc.VoteRefused},
		{"initialised again", View{"Empty", 7, 5, Unlimited, -1, "", 0}, EndTxnBumps, gtc.VoteRefused},
		{"untouched since a commit", View{"CompleteCommit", 7, 3, Unlimited, 500, "", 0}, EndTxnBumps, gtc.VoteRefused},
		{"untouched since an abort", View{"CompleteAbort", 7, 3, Unlimited, 500, "", 0}, EndTxnBumps, gtc.VoteRefused},
		{"untouched, the last end under way", View{"PrepareCommit", 7, 3, Unlimited, 500, "t", 4}, EndTxnBumps, gtc.VoteRefused},
		{"ended", View{"CompleteCommit", 7, 4, Unlimited, 1000, "", 0}, EndTxnBumps, gtc.VoteRefused},
		{"timed out", View{"CompleteAbort", 7, 4, Unlimited, 1000, "", 0}, EndTxnBumps, gtc.VoteRefused},
		{"nothing, or ended, on version 1", View{"CompleteCommit", 7, 3, Unlimited, 500, "", 0}, EndTxnKeeps, gtc.VoteRefused},
		{"nothing, or ended, on version 1, abort", View{"CompleteAbort", 7, 3, Unlimited, 500, "", 0}, EndTxnKeeps, gtc.VoteRefused},
		{"unknown id", View{"", -1, -1, 0, -1, "", 0}, EndTxnBumps, gtc.VoteRefused},
		{"unknown state", View{"Novel", 7, 3, Unlimited, 1000, "t", 4}, EndTxnBumps, gtc.VoteRefused},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Vote(tc.v, ref, tc.version)
			if got.Code != tc.want {
				t.Fatalf("vote %d (%s), want %d", got.Code, got.Detail, tc.want)
			}
			if got.Code == gtc.VoteRefused && got.Detail == "" {
				t.Error("refused without a reason")
			}
			if got.Code == gtc.VotePrepared {
				want := gtc.Vote{EndTxnVersion: tc.version, AuditTopic: tc.v.AuditTopic, AuditPartition: tc.v.AuditPartition, StartMillis: 1000}
				if got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
			}
		})
	}
}
