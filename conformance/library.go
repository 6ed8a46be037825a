package conformance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// library is this repository's client library against the target, with the
// suite between it and the coordinator.
type library struct {
	r     *Run
	front *proxy.Proxy

	mu  sync.Mutex
	all []kmsg.Request
}

// library puts the suite before the coordinator; change, which may be nil, sees
// each answer before the library does. A wrong client is made here too.
func (r *Run) library(change func(*proxy.Exchange)) *library {
	l := &library{r: r}
	front, err := proxy.Listen(r.ctx, "127.0.0.1:0", r.s.target.first(), proxy.Hooks{
		Request: func(x *proxy.Exchange) {
			if r.wrongClient.Request != nil {
				r.wrongClient.Request(x)
			}
			if x.Names(r.ours) {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.all = append(l.all, x.Request)
			}
		},
		Answer: func(x *proxy.Exchange) {
			if change != nil {
				change(x)
			}
			if x.Names(r.ours) {
				r.trace.add("client", "coordinator", x.Request, x.Response, x.Asked, x.Answered, nil)
			}
		},
	})
	r.Must(err, "listening before the coordinator")
	r.later(front.Close)
	l.front = front
	return l
}

// open opens a client of the id over A and B.
func (l *library) open(id string) *client.Client {
	cl, err := l.tryOpen(l.r.ctx, id)
	l.r.Must(err, "opening the library's client")
	return cl
}

func (l *library) tryOpen(ctx context.Context, id string) (*client.Client, error) {
	o := client.Options{
		GlobalTransactionalID: id, Coordinator: []string{l.front.Addr()}, CoordinatorOpts: l.r.s.target.Security.opts(),
		Clusters: map[string]client.Cluster{}, TransactionTimeout: longEnough, AskTimeout: 2 * time.Second,
	}
	for _, p := range []*Participant{l.r.A, l.r.B} {
		o.Clusters[p.Name] = client.Cluster{ClientOpts: append(p.target.Security.opts(), kgo.SeedBrokers(p.target.Bootstrap))}
	}
	cl, err := client.Open(ctx, o)
	if err == nil {
		l.r.later(func() {
			end, cancel := context.WithTimeout(context.WithoutCancel(l.r.ctx), 5*time.Second)
			defer cancel()
			_ = cl.Close(end)
		})
	}
	return cl, err
}

// begin begins a transaction and writes one record to each of some participants.
func (l *library) begin(cl *client.Client, topic, value string, ps ...*Participant) *client.Txn {
	txn, err := cl.Begin(l.r.ctx)
	l.r.Must(err, "the library's Begin")
	for _, p := range ps {
		err = txn.ProduceSync(l.r.ctx, p.Name, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr()
		l.r.Must(err, fmt.Sprintf("the library's Produce at %s", p.Name))
	}
	return txn
}

// requests are those of one type that the library has sent.
func sent[Q kmsg.Request](l *library) (all []Q) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, req := range l.all {
		if q, ok := req.(Q); ok {
			all = append(all, q)
		}
	}
	return all
}
