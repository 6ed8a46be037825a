package participant

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
)

func mine(id string) bool { return strings.HasPrefix(id, "mine-") }

func ids(open []gtc.OpenTransaction) []string {
	var out []string
	for _, o := range open {
		out = append(out, o.ID)
	}
	slices.Sort(out)
	return out
}

func TestScanFindsOpenTransactionsOfKnownIDsOnly(t *testing.T) {
	a := fake(t, "A", kfake.NumBrokers(3))
	c := drive(t, at("a", a.ListenAddrs()...))
	var want []string
	for i := range 6 {
		p := newProducer(t, fmt.Sprint("mine-", i), noTimeoutDuration, a.ListenAddrs()...)
		p.write("t")
		if i%2 == 0 {
			want = append(want, p.id)
			continue
		}
		settle(t, c, p.id, prepared(t, c, p.id, p.ref("A")), true)
	}
	newProducer(t, "other", noTimeoutDuration, a.ListenAddrs()...).write("t")
	// An ordinary producer of a name that is ours has a timeout.
	newProducer(t, "mine-by-name", time.Minute, a.ListenAddrs()...).write("t")
	newProducer(t, "mine-empty", noTimeoutDuration, a.ListenAddrs()...).ref("A")
	open, err := c.Scan(t.Context(), "A", mine)
	if err != nil || !slices.Equal(ids(open), want) {
		t.Fatalf("open %v, %v; want %v", ids(open), err, want)
	}
	for _, o := range open {
		if o.EndTxnVersion != verdict.EndTxnBumps || o.AuditTopic != "t" || o.StartMillis <= 0 {
			t.Errorf("%+v: want EndTxn v5, audit of t, and the start", o)
		}
	}
}

// Cannot read is not "not there": a look that missed anything says so.
func TestAPartialScanIsAnError(t *testing.T) {
	fail := func(code int16) func(*kmsg.ListTransactionsRequest) kmsg.Response {
		return func(req *kmsg.ListTransactionsRequest) kmsg.Response {
			resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
			resp.ErrorCode = code
			return resp
		}
	}
	for name, breakIt := range map[string]func(a *kfake.Cluster){
		"one broker loads its transactions": func(a *kfake.Cluster) {
			n := 0
			answer(a, 66, func(req *kmsg.ListTransactionsRequest) kmsg.Response {
				if n++; n != 2 {
					return nil
				}
				return fail(kerr.CoordinatorLoadInProgress.Code)(req)
			})
		},
		"a state filter is not understood": func(a *kfake.Cluster) {
			answer(a, 66, func(req *kmsg.ListTransactionsRequest) kmsg.Response {
				resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
				resp.UnknownStateFilters = []string{"Ongoing"}
				return resp
			})
		},
		"an id moves between the list and the look": func(a *kfake.Cluster) {
			answer(a, 65, func(req *kmsg.DescribeTransactionsRequest) kmsg.Response {
				resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
				for _, id := range req.TransactionalIDs {
					st := kmsg.NewDescribeTransactionsResponseTransactionState()
					st.TransactionalID, st.ErrorCode = id, kerr.NotCoordinator.Code
					resp.TransactionStates = append(resp.TransactionStates, st)
				}
				return resp
			})
		},
		"an id is left out of the answer": func(a *kfake.Cluster) {
			answer(a, 65, func(req *kmsg.DescribeTransactionsRequest) kmsg.Response { return req.ResponseKind() })
		},
		"a partition of the transaction log has no leader": func(a *kfake.Cluster) { leaders(a, 1, -1) },
		"leaders change during the scan":                   func(a *kfake.Cluster) { leaders(a, 1, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			a := fake(t, "A", kfake.NumBrokers(3))
			c := drive(t, at("a", a.ListenAddrs()...))
			for i := range 4 {
				newProducer(t, fmt.Sprint("mine-", i), noTimeoutDuration, a.ListenAddrs()...).write("t")
			}
			breakIt(a)
			if open, err := c.Scan(t.Context(), "A", mine); err == nil {
				t.Errorf("no error; open %v", ids(open))
			}
		})
	}
}

// leaders makes Metadata say who leads __transaction_state-0, one after the
// other.
func leaders(a *kfake.Cluster, in ...int32) {
	addrs := a.ListenAddrs()
	n := 0
	answer(a, 3, func(req *kmsg.MetadataRequest) kmsg.Response {
		if len(req.Topics) != 1 || *req.Topics[0].Topic != transactionStateTopic {
			return nil
		}
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		resp.ClusterID = kmsg.StringPtr("A")
		for i, addr := range addrs {
			b := kmsg.NewMetadataResponseBroker()
			host, port, _ := strings.Cut(addr, ":")
			b.NodeID, b.Host = int32(i), host
			_, _ = fmt.Sscan(port, &b.Port)
			resp.Brokers = append(resp.Brokers, b)
		}
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic = req.Topics[0].Topic
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Leader = in[min(n, len(in)-1)]
		n++
		topic.Partitions = append(topic.Partitions, p)
		resp.Topics = append(resp.Topics, topic)
		return resp
	})
}

func TestScanOfADeadClusterIsAnError(t *testing.T) {
	dead := at("dead", blackHole(t))
	dead.ExpectedClusterID, dead.RequestTimeout = "C", 200_000_000
	c := drive(t, dead)
	if _, err := c.Scan(t.Context(), "C", mine); err == nil {
		t.Error("no error")
	}
}
