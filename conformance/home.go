package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// stateTopic is the log, which the suite reads, and into which it writes as the
// owner before the present one would have.
const stateTopic = "__global_transaction_state"

// logValue is a GlobalTransactionLogValue, as KIP.md has it.
type logValue struct {
	State                  int8
	Epoch                  int32
	Sequence               int64
	TimeoutMillis          int32
	Instance, Previous     [16]byte
	SessionEnded           bool
	Clusters               []string
	Participants, Leftover []logParticipant
	Reason                 string
	DecidedMs, UpdatedMs   int64
	Tags                   kmsg.Tags
}

type logParticipant struct {
	Cluster        string
	PID            int64
	Epoch          int16
	EndTxn         int16
	State          int8
	NextPID        int64
	NextEpoch      int16
	AuditTopic     string
	AuditPartition int32
	StartMs        int64
	Detail         string
}

// logEntry is a record about one id.
type logEntry struct {
	*kgo.Record
	*logValue // nil: a tombstone
}

// recorded states.
const (
	logEmpty int8 = iota
	logPrepareCommit
	logPrepareAbort
	logCompleteCommit
	logCompleteAbort
)

func (v *logValue) append(version int16) []byte {
	b := kbin.AppendInt16(nil, version)
	b = kbin.AppendInt8(b, v.State)
	b = kbin.AppendInt32(b, v.Epoch)
	b = kbin.AppendInt64(b, v.Sequence)
	b = kbin.AppendInt32(b, v.TimeoutMillis)
	b = kbin.AppendUuid(b, v.Instance)
	b = kbin.AppendUuid(b, v.Previous)
	b = kbin.AppendBool(b, v.SessionEnded)
	b = kbin.AppendCompactArrayLen(b, len(v.Clusters))
	for _, c := range v.Clusters {
		b = kbin.AppendCompactString(b, c)
	}
	for _, ps := range [][]logParticipant{v.Participants, v.Leftover} {
		b = kbin.AppendCompactArrayLen(b, len(ps))
		for _, p := range ps {
			b = kbin.AppendCompactString(b, p.Cluster)
			b = kbin.AppendInt64(b, p.PID)
			b = kbin.AppendInt16(b, p.Epoch)
			b = kbin.AppendInt16(b, p.EndTxn)
			b = kbin.AppendInt8(b, p.State)
			b = kbin.AppendInt64(b, p.NextPID)
			b = kbin.AppendInt16(b, p.NextEpoch)
			b = kbin.AppendCompactString(b, p.AuditTopic)
			b = kbin.AppendInt32(b, p.AuditPartition)
			b = kbin.AppendInt64(b, p.StartMs)
			b = kbin.AppendCompactString(b, p.Detail)
			b = append(b, 0)
		}
	}
	b = kbin.AppendCompactString(b, v.Reason)
	b = kbin.AppendInt64(b, v.DecidedMs)
	b = kbin.AppendInt64(b, v.UpdatedMs)
	b = kbin.AppendUvarint(b, uint32(v.Tags.Len()))
	v.Tags.Each(func(key uint32, val []byte) {
		b = kbin.AppendUvarint(b, key)
		b = kbin.AppendUvarint(b, uint32(len(val)))
		b = append(b, val...)
	})
	return b
}

func (v *logValue) read(b []byte) error {
	r := kbin.Reader{Src: b}
	if version := r.Int16(); version != 0 {
		return fmt.Errorf("%w: value version %d", errAnswer, version)
	}
	v.State, v.Epoch, v.Sequence, v.TimeoutMillis = r.Int8(), r.Int32(), r.Int64(), r.Int32()
	v.Instance, v.Previous, v.SessionEnded = r.Uuid(), r.Uuid(), r.Bool()
	for range max(0, r.CompactArrayLen()) {
		v.Clusters = append(v.Clusters, r.CompactString())
	}
	for _, ps := range []*[]logParticipant{&v.Participants, &v.Leftover} {
		for range max(0, r.CompactArrayLen()) {
			*ps = append(*ps, logParticipant{
				Cluster: r.CompactString(), PID: r.Int64(), Epoch: r.Int16(), EndTxn: r.Int16(), State: r.Int8(),
				NextPID: r.Int64(), NextEpoch: r.Int16(), AuditTopic: r.CompactString(), AuditPartition: r.Int32(), StartMs: r.Int64(), Detail: r.CompactString(),
			})
			for range r.Uvarint() {
				r.Uvarint()
				r.Span(int(r.Uvarint()))
			}
			if !r.Ok() {
				return r.Complete()
			}
		}
	}
	v.Reason, v.DecidedMs, v.UpdatedMs = r.CompactString(), r.Int64(), r.Int64()
	for range r.Uvarint() {
		key := r.Uvarint()
		v.Tags.Set(key, r.Span(int(r.Uvarint())))
	}
	return r.Complete()
}

// logKey is the key of an id's records.
func logKey(id string) []byte { return kbin.AppendString(kbin.AppendInt16(nil, 0), id) }

// home is a client of the home cluster.
func (r *Run) home(opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append(append(r.s.target.HomeSecurity.opts(), kgo.SeedBrokers(r.s.target.Home), kgo.MaxVersions(kversion.V3_7_0())), opts...)...)
	r.Must(err, "connecting to the home cluster")
	r.later(cl.Close)
	return cl
}

// partitionOf is C-ROLE-3.
func (r *Run) partitionOf(id string) int32 {
	r.mu.Lock()
	n := r.partitions
	r.mu.Unlock()
	if n == 0 {
		details, err := kadm.NewClient(r.home()).ListTopics(r.ctx, stateTopic)
		r.Must(err, "asking for the topic of the log")
		n = int32(len(details[stateTopic].Partitions))
		r.Check(n > 0, "%s has no partitions", stateTopic)
		r.mu.Lock()
		r.partitions = n
		r.mu.Unlock()
	}
	var h int32
	for _, u := range utf16.Encode([]rune(id)) {
		h = 31*h + int32(u)
	}
	if h == math.MinInt32 {
		h = 0
	}
	return max(h, -h) % n
}

// log reads a partition of the log from its begin to its present end.
func (r *Run) log(partition int32) (all []*kgo.Record) {
	adm := kadm.NewClient(r.home())
	ends, err := adm.ListEndOffsets(r.ctx, stateTopic)
	r.Must(err, "asking for the end of the log")
	end, _ := ends.Lookup(stateTopic, partition)
	cl := r.home(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{stateTopic: {partition: kgo.NewOffset().AtStart()}}),
		kgo.KeepControlRecords(), kgo.FetchIsolationLevel(kgo.ReadUncommitted()), kgo.KeepRetryableFetchErrors())
	for next := int64(0); next < end.Offset; {
		ctx, cancel := context.WithTimeout(r.ctx, 10*time.Second)
		fetched := cl.PollFetches(ctx)
		cancel()
		if err := fetched.Err0(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			r.Must(err, "reading the log")
		}
		r.Check(r.ctx.Err() == nil, "the log cannot be read to its end")
		fetched.EachRecord(func(rec *kgo.Record) { all, next = append(all, rec), rec.Offset+1 })
	}
	return all
}

// logged is the last record of an id in a partition of the log, nil for none.
func (r *Run) logged(partition int32, id string) (last *logEntry) {
	key := string(logKey(id))
	for _, rec := range r.log(partition) {
		if string(rec.Key) != key {
			continue
		}
		last = &logEntry{Record: rec}
		if rec.Value != nil {
			last.logValue = &logValue{}
			r.Must(last.read(rec.Value), "reading a record of the log by the schema")
		}
	}
	return last
}

// owner is the suite in the place of an owner of a partition of the log.
type owner struct {
	r         *Run
	cl        *kgo.Client
	partition int32
	pid       int64
	epoch     int16
	next      int32
}

// claim makes the suite the owner of a partition: the present one is fenced.
func (r *Run) claim(partition int32) *owner {
	o := &owner{r: r, cl: r.home(), partition: partition}
	r.Note("the suite claims a partition of the log")
	r.Must(o.write(), "writing a claim")
	return o
}

// write appends a batch as the owner, after a claim. Whom the suite has fenced
// finds out by its next write, or looks again from time to time at a log that it
// cannot read, and claims the partition back: then the suite begins anew.
func (o *owner) write(records ...kmsg.Record) (err error) {
	for {
		if o.next == 0 {
			err = o.take()
		}
		if err == nil && len(records) > 0 {
			err = o.append(records...)
		}
		fenced := errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.ProducerFenced)
		if !fenced || !o.r.pause(time.Millisecond) {
			return err
		}
		o.next, err = 0, nil
	}
}

// take initialises the producer of the partition, and appends the claim.
func (o *owner) take() error {
	r, id := o.r, fmt.Sprintf("__gtc-%d", o.partition)
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, 60_000, -1, -1
	r.Until("InitProducerId of "+id, func() (bool, string) {
		resp, err := req.RequestWith(r.ctx, o.cl)
		if err != nil {
			return false, err.Error()
		}
		o.pid, o.epoch = resp.ProducerID, resp.ProducerEpoch
		return resp.ErrorCode == 0, codeName(resp.ErrorCode)
	})
	value := kbin.AppendInt32(kbin.AppendInt16(nil, 0), 99)
	value = kbin.AppendInt16(kbin.AppendInt64(value, o.pid), o.epoch)
	value = append(kbin.AppendCompactString(kbin.AppendInt64(value, time.Now().UnixMilli()), "conformance"), 0)
	return o.append(kmsg.Record{Key: kbin.AppendInt16(nil, 1), Value: value})
}

// append is write once; the error is the leader's.
func (o *owner) append(records ...kmsg.Record) error {
	err := o.produce(recordBatch(o.pid, o.epoch, o.next, 0, records...))
	o.next += int32(len(records))
	return err
}

// record is one of an id.
func (v *logValue) record(id string) kmsg.Record {
	return kmsg.Record{Key: logKey(id), Value: v.append(0)}
}

func (o *owner) produce(batch []byte) error {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = o.partition, batch
	rt.Topic, rt.Partitions = stateTopic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(o.r.ctx, o.cl)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}
