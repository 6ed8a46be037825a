package participant

import (
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
)

// blackHole accepts connections and never answers.
func blackHole(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns = append(conns, conn)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
		for _, c := range conns {
			_ = c.Close()
		}
	})
	return l.Addr().String()
}

func portOf(t *testing.T, addr string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A broker that lost its leadership answers "Empty" from its cache of before;
// believed, that would leave a written participant out of the commit.
func TestAStaleEmptyIsNotAVote(t *testing.T) {
	a := fake(t, "A")
	c := drive(t, at("a", a.ListenAddrs()...))
	p := newProducer(t, "tid", noTimeoutDuration, a.ListenAddrs()...)
	p.write("t")
	ref := p.ref("A")
	looks := 0
	answer(a, 65, func(req *kmsg.DescribeTransactionsRequest) kmsg.Response {
		if looks++; looks > 1 {
			return nil
		}
		resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		st := kmsg.NewDescribeTransactionsResponseTransactionState()
		st.TransactionalID, st.State = "tid", "Empty"
		st.ProducerID, st.ProducerEpoch, st.TimeoutMillis = ref.ProducerID, ref.ProducerEpoch, verdict.Unlimited
		resp.TransactionStates = append(resp.TransactionStates, st)
		return resp
	})
	prepared(t, c, "tid", ref)
	if looks != 2 {
		t.Errorf("%d looks, want 2", looks)
	}
}

// The vote survives that the transaction coordinator moves between two votes.
func TestVoteFollowsTheCoordinator(t *testing.T) {
	a := fake(t, "A", kfake.NumBrokers(3))
	c := drive(t, at("a", a.ListenAddrs()...))
	const ids = 12
	refs := make([]gtc.ParticipantRef, ids)
	for i := range ids {
		p := newProducer(t, fmt.Sprint("tid-", i), noTimeoutDuration, a.ListenAddrs()...)
		p.write("t")
		refs[i] = p.ref("A")
		prepared(t, c, p.id, refs[i])
	}
	a.RehashCoordinators()
	for i := range ids {
		prepared(t, c, fmt.Sprint("tid-", i), refs[i])
	}
}

func TestConcurrentVotesShareRequests(t *testing.T) {
	a := fake(t, "A")
	c := drive(t, at("a", a.ListenAddrs()...))
	const votes = 100
	refs := make([]gtc.ParticipantRef, votes)
	for i := range votes {
		p := newProducer(t, fmt.Sprint("tid-", i), noTimeoutDuration, a.ListenAddrs()...)
		p.write("t")
		refs[i] = p.ref("A")
		p.cl.Close()
	}
	var looks, asked atomic.Int32
	inFlight, release := make(chan struct{}), make(chan struct{})
	answer(a, 65, func(req *kmsg.DescribeTransactionsRequest) kmsg.Response {
		asked.Add(int32(len(req.TransactionalIDs)))
		if looks.Add(1) == 1 {
			close(inFlight)
			<-release // until the other 99 wait
		}
		return nil
	})
	if _, err := c.lookup(t.Context(), "A"); err != nil {
		t.Fatal(err)
	}
	s := c.all[0].current[lookLane]
	// First the look-ups: below kfake stands still while it holds an answer.
	inParallel(votes, func(i int) {
		if _, err := s.coordinator(t.Context(), fmt.Sprint("tid-", i)); err != nil {
			t.Error(err)
		}
	})
	vote := func(i int) {
		if v := c.Vote(t.Context(), fmt.Sprint("tid-", i), refs[i:i+1])[0]; v.Code != gtc.VotePrepared {
			t.Errorf("vote %d: %+v, want prepared", i, v)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { vote(0) })
	<-inFlight
	for i := 1; i < votes; i++ {
		wg.Go(func() { vote(i) })
	}
	p := s.peer(a.CoordinatorFor("tid-0"))
	eventually(t, func() bool {
		p.describing.mu.Lock()
		defer p.describing.mu.Unlock()
		return len(p.describing.waiting) == 1 && len(p.describing.waiting[0].keys) == votes-1
	})
	close(release)
	wg.Wait()
	if looks.Load() != 2 || asked.Load() != votes {
		t.Errorf("%d DescribeTransactions for %d ids, want 2 for %d", looks.Load(), asked.Load(), votes)
	}
}

func TestVotesAreInOrderAndPerCluster(t *testing.T) {
	a, b := fake(t, "A"), fake(t, "B")
	c := drive(t, at("a", a.ListenAddrs()...), at("b", b.ListenAddrs()...))
	p := newProducer(t, "tid", noTimeoutDuration, b.ListenAddrs()...)
	p.write("t")
	votes := c.Vote(t.Context(), "tid", []gtc.ParticipantRef{{ClusterID: "A"}, p.ref("B"), {ClusterID: "nope"}})
	for i, want := range []gtc.VoteCode{gtc.VoteRefused, gtc.VotePrepared, gtc.VoteUnavailable} {
		if votes[i].Code != want {
			t.Errorf("vote %d: %+v, want %d", i, votes[i], want)
		}
	}
	contains(t, votes[2].Detail, `"nope"`)
	contains(t, votes[2].Detail, "a=A, b=B")
}

// The partition to be audited is one of the application's where there is one.
func TestTheAuditPartitionIsOfTheApplication(t *testing.T) {
	offsets := kmsg.DescribeTransactionsResponseTransactionStateTopic{Topic: "__consumer_offsets", Partitions: []int32{9}}
	app := kmsg.DescribeTransactionsResponseTransactionStateTopic{Topic: "t", Partitions: []int32{4, 5}}
	other := kmsg.DescribeTransactionsResponseTransactionStateTopic{Topic: "u", Partitions: []int32{1}}
	hidden := kmsg.DescribeTransactionsResponseTransactionStateTopic{Topic: "v"}
	for _, tc := range []struct {
		topics    []kmsg.DescribeTransactionsResponseTransactionStateTopic
		topic     string
		partition int32
	}{
		{[]kmsg.DescribeTransactionsResponseTransactionStateTopic{offsets, app, other}, "t", 4},
		{[]kmsg.DescribeTransactionsResponseTransactionStateTopic{hidden, app, offsets}, "t", 4},
		{[]kmsg.DescribeTransactionsResponseTransactionStateTopic{offsets}, "__consumer_offsets", 9},
		{[]kmsg.DescribeTransactionsResponseTransactionStateTopic{hidden}, "", 0},
		{nil, "", 0},
	} {
		v := viewOf(kmsg.DescribeTransactionsResponseTransactionState{Topics: tc.topics})
		if v.AuditTopic != tc.topic || v.AuditPartition != tc.partition {
			t.Errorf("%v: %s-%d, want %s-%d", tc.topics, v.AuditTopic, v.AuditPartition, tc.topic, tc.partition)
		}
	}
}
