package conformance

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

var (
	homes  = []Need{NeedParticipants, NeedHome}
	owners = []Need{NeedParticipants, NeedHome, NeedLogWrite}
)

// logCases read the log, and write into it as an earlier owner would have: what
// a coordinator makes of it is what it would make of a predecessor's.
var logCases = []Case{
	{
		ID: "RECO-30", Clauses: []string{"C-LOG-4"}, Needs: homes,
		Title: "The log's batches are idempotent, not transactional, and under the claim's producer", Means: "A stale coordinator's records are not refused by the log.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			s.End(true)
			var claims, records int
			var pid int64
			var epoch int16
			for _, rec := range r.log(r.partitionOf(s.ID)) {
				r.Check(rec.ProducerID >= 0 && !rec.Attrs.IsTransactional() && !rec.Attrs.IsControl(), "a batch of the log is transactional, or not idempotent")
				if keyType(rec) == 1 {
					claims, pid, epoch = claims+1, rec.ProducerID, rec.ProducerEpoch
					continue
				}
				records++
				r.Check(rec.ProducerID == pid && rec.ProducerEpoch == epoch, "a record is not under the producer of the claim before it")
			}
			r.Check(claims >= 1 && records >= 2, "the log has %d claims and %d records", claims, records)
		},
		Wrong: []wrong.Fault{stored("writes transactional batches", func(b *kmsg.RecordBatch) { b.Attributes |= 0x10 })},
	},
	{
		ID: "RECO-31", Clauses: []string{"C-REC-1", "C-END-15"}, Needs: homes,
		Title: "Each record holds the whole state of its id, by the schema", Means: "Compaction loses a part of a decision.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			s.End(true)
			s.Write("w", r.A, r.B)
			s.End(false)
			var last *logEntry
			r.Until("the completion in the log", func() (bool, string) {
				last = r.logged(r.partitionOf(s.ID), s.ID)
				return last != nil && last.logValue != nil && last.State == logCompleteAbort, "not there"
			})
			r.Check(last.Epoch == s.Epoch && last.Sequence == s.Sequence-1 && last.Instance == s.Init.InstanceID && len(last.Clusters) == 2 && len(last.Participants) == 2,
				"epoch, sequence, instance, clusters or participants are not those of the id")
			r.Check(last.DecidedMs > 0 && last.UpdatedMs >= last.DecidedMs, "the times are wrong")
		},
		Wrong: []wrong.Fault{wrong.Stalling(asked("writes another outcome", flipCommit)), wrong.Requests("writes another instance", func(req *wire.InitGlobalTxnRequest) bool {
			req.InstanceID[3]++
			return true
		})},
	},
	{
		ID: "RECO-32", Clauses: []string{"C-RCV-1", "C-LOG-1", "C-LOG-2"}, Needs: owners, Alone: true,
		Title: "The decision of an owner that came between is carried out", Means: "A predecessor's commit is lost in a failover.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			o := r.claim(r.partitionOf(s.ID))
			v := s.value(logPrepareCommit)
			r.Must(o.write(v.record(s.ID)), "writing the decision")
			r.displace(o)
			r.Becomes(s.ID, wire.StateCompleteCommit)
			r.Sees(r.A, s.Topic, "v")
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{wrong.Stalling(swallows("does not tell it", func(req *kmsg.EndTxnRequest) bool { return req.Commit }))},
	},
	{
		ID: "RECO-33", Clauses: []string{"C-LOG-2", "C-LOG-5"}, Needs: owners, Alone: true,
		Title: "A fenced owner's records are refused, and it claims again before it answers", Means: "Two coordinators write into one log.",
		Run: func(r *Run) {
			s := r.Open()
			partition := r.partitionOf(s.ID)
			o := r.claim(partition)
			r.displace(o)
			after, claimed := false, false
			for _, rec := range r.log(partition) {
				if rec.ProducerID == o.pid && rec.ProducerEpoch == o.epoch {
					after = true
					continue
				}
				if !after {
					continue
				}
				newer := rec.ProducerID != o.pid || rec.ProducerEpoch > o.epoch
				r.Check(newer, "after a claim the log has a record under an older epoch")
				r.Check(claimed || keyType(rec) == 1, "the next owner wrote before its claim")
				claimed = true
			}
			r.Check(claimed, "nobody has claimed the partition after the suite")
		},
		Wrong: []wrong.Fault{stored("goes on under its old epoch", func(b *kmsg.RecordBatch) { b.ProducerEpoch = max(0, b.ProducerEpoch-b.ProducerEpoch%2) })},
	},
	{
		ID: "RECO-34", Clauses: []string{"C-LOG-3"}, Needs: owners, Alone: true,
		Title: "A record that does not carry the claim's producer does not count", Means: "Whoever may write to the topic changes decisions.",
		Run: func(r *Run) {
			s := r.Open()
			o := r.claim(r.partitionOf(s.ID))
			rogue := s.value(logCompleteCommit)
			rogue.Epoch = 77
			r.Must(o.produce(recordBatch(-1, -1, -1, 0, rogue.record(s.ID))), "writing a record under no producer")
			r.Must(o.write(s.value(logEmpty).record(s.ID)), "writing the owner's behind it") // else the partition is refused
			r.displace(o)
			d := r.Describe(s.ID)
			r.Check(d.GlobalEpoch == s.Epoch && d.State == wire.StateEmpty, "the record of nobody was taken")
		},
		Wrong: []wrong.Fault{describes("takes every record", func(d *wire.DescribeGlobalTransactionsResponseGlobalTransaction) { d.GlobalEpoch = 77 })},
	},
	{
		ID: "RECO-35", Clauses: []string{"C-REC-2"}, Needs: owners, Alone: true,
		Title: "A record of an unknown type is skipped", Means: "A newer version's records keep an older node from starting.",
		Run: func(r *Run) {
			s := r.Open()
			o := r.claim(r.partitionOf(s.ID))
			r.Must(o.write(kmsg.Record{Key: append(kbin.AppendInt16(nil, 77), "future"...), Value: []byte{0, 9, 1, 2, 3}}), "writing a record of an unknown type")
			r.displace(o)
			r.Refused("DescribeGlobalTransactions", r.Describe(s.ID).ErrorCode, nil)
		},
		Wrong: []wrong.Fault{describes("stops at it", func(d *wire.DescribeGlobalTransactionsResponseGlobalTransaction) {
			d.ErrorCode = wire.CorruptGlobalTransactionLog.Code
		})},
	},
	{
		ID: "RECO-36", Clauses: []string{"C-REC-2"}, Needs: owners, Alone: true,
		Title: "Tagged fields that are not known survive a rewrite", Means: "An older node deletes what a newer one has written.",
		Run: func(r *Run) {
			s := r.Open()
			partition := r.partitionOf(s.ID)
			o := r.claim(partition)
			v := s.value(logEmpty)
			v.Tags.Set(4711, []byte("from the future"))
			r.Must(o.write(v.record(s.ID)), "writing a record with a tag")
			r.displace(o)
			r.InitOK(r.InitRequest(s.ID, longEnough, r.A, r.B))
			last := r.logged(partition, s.ID)
			r.Check(last != nil && last.logValue != nil && last.Epoch == s.Epoch+1, "the record was not rewritten")
			found := false
			last.Tags.Each(func(key uint32, val []byte) { found = found || key == 4711 && string(val) == "from the future" })
			r.Check(found, "the tagged field is gone")
		},
		Wrong: []wrong.Fault{stored("writes other tagged fields than it has read", func(b *kmsg.RecordBatch) {
			b.Records = bytes.ReplaceAll(b.Records, []byte("from the future"), []byte("from the pasture"[:15]))
		})},
	},
	{
		ID: "RECO-37", Clauses: []string{"C-REC-4"}, Needs: owners, Alone: true,
		Title: "The largest producer id and epoch survive", Means: "A decision names another transaction after 32767 ends.",
		Run: func(r *Run) {
			s := r.Open()
			o := r.claim(r.partitionOf(s.ID))
			v := s.value(logCompleteCommit)
			for i := range v.Participants {
				v.Participants[i].PID, v.Participants[i].Epoch, v.Participants[i].State = math.MaxInt64, math.MaxInt16, wire.ParticipantComplete
			}
			r.Must(o.write(v.record(s.ID)), "writing the record")
			r.displace(o)
			d := r.Describe(s.ID)
			r.Check(d.Sequence == v.Sequence && len(d.Participants) == 2, "the record was not taken")
			for _, p := range d.Participants {
				r.Check(p.ProducerID == math.MaxInt64 && p.ProducerEpoch == math.MaxInt16, "producer id or epoch are others")
			}
		},
		Wrong: []wrong.Fault{describes("reads the epoch as negative", func(d *wire.DescribeGlobalTransactionsResponseGlobalTransaction) {
			for i := range d.Participants {
				d.Participants[i].ProducerEpoch = -1
			}
		})},
	},
	{
		ID: "RECO-39", Clauses: []string{"C-EXP-1"}, Needs: []Need{NeedParticipants, NeedHome, NeedLogWrite, NeedQuickScan}, Alone: true,
		Title: "An id whose last record is old is not forgotten while a participant has something open", Means: "Nobody ends what an expired id has left open, and its readers stand still.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A)
			r.Becomes(s.ID, wire.StateOngoing)
			o := r.claim(r.partitionOf(s.ID))
			v := s.value(logEmpty)
			v.UpdatedMs = time.Now().Add(-2 * r.s.target.Expiration).UnixMilli()
			r.Must(o.write(v.record(s.ID)), "writing an old record")
			r.displace(o)
			r.NeverBefore("the id is forgotten", r.scans(r.A, 4), func() (bool, string) {
				d := r.Describe(s.ID)
				return d.ErrorCode != 0, codeName(d.ErrorCode)
			})
			s.End(true)
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{describes("forgets by age alone", func(d *wire.DescribeGlobalTransactionsResponseGlobalTransaction) {
			if d.UpdateTimestampMillis < time.Now().Add(-time.Hour).UnixMilli() {
				d.ErrorCode = kerr.TransactionalIDNotFound.Code
			}
		})},
	},
	{
		ID: "RECO-38", Clauses: []string{"C-REC-3", "C-ADM-3", "C-ROLE-4"}, Needs: []Need{NeedParticipants, NeedHome, NeedLogWrite}, Alone: true,
		Title: "A record of an unknown version keeps its partition from loading, and every answer says so", Means: "A decided commit that a newer node has recorded is presumed aborted.",
		Run: func(r *Run) {
			s := r.Open()
			partition := r.partitionOf(s.ID)
			good := s.value(logEmpty).record(s.ID)
			defer r.repair(s.ID, partition, good)
			o := r.claim(partition)
			r.Must(o.write(kmsg.Record{Key: good.Key, Value: append([]byte{0, 9}, good.Value[2:]...)}), "writing a record of version 9")
			r.Until("the target finding out", func() (bool, string) {
				code := r.Init(r.InitRequest(s.ID, longEnough, r.A, r.B)).ErrorCode
				return code == wire.CorruptGlobalTransactionLog.Code, codeName(code)
			})
			r.Refused("DescribeGlobalTransactions", r.Describe(s.ID).ErrorCode, wire.CorruptGlobalTransactionLog)
			r.Refused("ListGlobalTransactions", codeOf(r.Coordinator(s.ID, wire.NewPtrListGlobalTransactionsRequest())), wire.CorruptGlobalTransactionLog)
			req := s.Request(true)
			req.Participants = append(req.Participants, s.Producers[r.A].Ref(), s.Producers[r.B].Ref())
			r.Answered(r.Ask(req), wire.CorruptGlobalTransactionLog, wire.OutcomeUnknown)
		},
		Wrong: []wrong.Fault{wrong.Answers("lists the other partitions", func(_ *wire.ListGlobalTransactionsRequest, resp *wire.ListGlobalTransactionsResponse) bool {
			resp.ErrorCode = 0
			return true
		}), wrong.Stalling(recodes(wire.CorruptGlobalTransactionLog, kerr.TransactionalIDNotFound))},
	},
	{
		ID: "RECO-40", Clauses: []string{"C-CFG-1"}, Needs: []Need{NeedHome},
		Title: "The topic of the log is compacted, and stamped by its leader", Means: "Decisions are deleted with age, or refused because of a clock.",
		Run: func(r *Run) {
			got, err := kadm.NewClient(r.home()).DescribeTopicConfigs(r.ctx, stateTopic)
			r.Must(err, "asking for the topic's settings")
			want := map[string]string{"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
			for _, c := range got[0].Configs {
				if w, ok := want[c.Key]; ok {
					r.Check(c.MaybeValue() == w, "%s is %s", c.Key, c.MaybeValue())
					delete(want, c.Key)
				}
			}
			r.Check(len(want) == 0, "the topic's settings leave %d of two out", len(want))
		},
		Wrong: []wrong.Fault{wrong.Answers("deletes by age", func(_ *kmsg.DescribeConfigsRequest, resp *kmsg.DescribeConfigsResponse) bool {
			for i := range resp.Resources {
				for k := range resp.Resources[i].Configs {
					if c := &resp.Resources[i].Configs[k]; c.Name == "cleanup.policy" {
						c.Value = kmsg.StringPtr("delete")
					}
				}
			}
			return true
		})},
	},
}

func keyType(rec *kgo.Record) int {
	if len(rec.Key) < 2 {
		return -1
	}
	return int(rec.Key[0])<<8 | int(rec.Key[1])
}

// value is a record of the session in some state, as a coordinator would have
// written it.
func (s *Session) value(state int8) *logValue {
	v := &logValue{
		State: state, Epoch: s.Epoch, Sequence: s.Sequence - 1, TimeoutMillis: s.Init.TimeoutMillis, Instance: s.Init.InstanceID,
		Clusters: s.Init.ClusterIDs, DecidedMs: -1, UpdatedMs: time.Now().UnixMilli(),
	}
	if state == logEmpty {
		return v
	}
	v.Sequence, v.DecidedMs = s.Sequence, v.UpdatedMs
	for p, q := range s.Producers {
		start := int64(-1)
		if topic := s.Topic; topic != "" {
			start = s.r.State(p, s.ID).StartTimestamp
		}
		v.Participants = append(v.Participants, logParticipant{
			Cluster: p.ID, PID: q.PID, Epoch: q.Epoch, EndTxn: p.EndTxn, NextPID: -1, NextEpoch: -1, AuditTopic: s.Topic, StartMs: start,
		})
	}
	return v
}

// displace makes the target write into the partition that the suite has
// claimed, so that it finds out, claims again and reads.
func (r *Run) displace(o *owner) {
	id := ""
	for i := 0; id == "" || r.partitionOf(id) != o.partition; i++ {
		id = fmt.Sprintf("%sdisplace-%d", r.name, i)
	}
	r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
}

// repair replaces a record that cannot be read, and lets the target load again.
func (r *Run) repair(id string, partition int32, good kmsg.Record) {
	r.evenLate(func() {
		r.Must(r.claim(partition).write(good), "writing a good record again")
		r.Until("the partition being loaded again", func() (bool, string) {
			code := r.Describe(id).ErrorCode
			return code == 0, codeName(code)
		})
	})
}
