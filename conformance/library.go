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

// libraries are the needs of cases that listen in to the library.
var libraries = []Need{NeedParticipants, NeedPlain}

// library is this repository's client library against the target, with the
// suite between it and the coordinator, and between it and the clusters where
// listen has been called.
type library struct {
	r     *Run
	front *proxy.Proxy
	links map[*Participant]*proxy.Proxy
	ring  int // of the clients opened from now on

	mu  sync.Mutex
	all []said
}

// said is a request of the library, to the coordinator where at is nil.
type said struct {
	at  *Participant
	req kmsg.Request
}

// library puts the suite before the coordinator; change, which may be nil, sees
// each answer before the library does. A wrong client is made here too.
func (r *Run) library(change func(*proxy.Exchange)) *library {
	l := &library{r: r, links: map[*Participant]*proxy.Proxy{}}
	front, err := proxy.Listen(r.ctx, "127.0.0.1:0", r.s.target.first(), proxy.Hooks{
		Request: func(x *proxy.Exchange) {
			if r.wrongClient.Request != nil {
				r.wrongClient.Request(x)
			}
			l.hear(nil, x)
		},
		Answer: func(x *proxy.Exchange) {
			if change != nil {
				change(x)
			}
			if r.wrongClient.Answer != nil {
				r.wrongClient.Answer(x)
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

// listen puts the suite before the clusters too, for the clients opened from now
// on; answer, which may be nil, sees each answer before the library does.
func (l *library) listen(answer func(*Participant, *proxy.Exchange)) *library {
	r := l.r
	for _, p := range []*Participant{r.A, r.B} {
		link, err := proxy.Listen(r.ctx, "127.0.0.1:0", p.target.Bootstrap, proxy.Hooks{
			Request: func(x *proxy.Exchange) {
				if !x.Names(r.ours) {
					return
				}
				if r.wrongClient.Request != nil {
					r.wrongClient.Request(x)
				}
				l.hear(p, x)
			},
			Answer: func(x *proxy.Exchange) {
				if !x.Names(r.ours) {
					return
				}
				if answer != nil {
					answer(p, x)
				}
				if r.wrongClient.Answer != nil {
					r.wrongClient.Answer(x)
				}
				r.trace.add("client", p.Name, x.Request, x.Response, x.Asked, x.Answered, nil)
			},
		})
		r.Must(err, "listening before a cluster")
		r.later(link.Close)
		l.links[p] = link
	}
	return l
}

func (l *library) hear(at *Participant, x *proxy.Exchange) {
	if x.Names(l.r.ours) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, said{at, x.Request})
	}
}

// address is where the library finds a cluster.
func (l *library) address(p *Participant) string {
	if link := l.links[p]; link != nil {
		return link.Addr()
	}
	return p.target.Bootstrap
}

// open opens a client of the id over A and B.
func (l *library) open(id string) *client.Client {
	cl, err := l.tryOpen(l.r.ctx, id)
	l.r.Must(err, "opening the library's client")
	return cl
}

func (l *library) tryOpen(ctx context.Context, id string) (*client.Client, error) {
	return l.tryOpenOver(ctx, id, l.r.A, l.r.B)
}

func (l *library) tryOpenOver(ctx context.Context, id string, ps ...*Participant) (*client.Client, error) {
	o := client.Options{
		GlobalTransactionalID: id, Coordinator: []string{l.front.Addr()}, CoordinatorOpts: l.r.s.target.Security.opts(),
		Clusters: map[string]client.Cluster{}, TransactionTimeout: longEnough, AskTimeout: 2 * time.Second, Ring: l.ring,
	}
	for _, p := range ps {
		o.Clusters[p.Name] = client.Cluster{ClientOpts: append(p.target.Security.opts(), kgo.SeedBrokers(l.address(p)))}
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

// sent are the requests of one type that the library has sent to the
// coordinator.
func sent[Q kmsg.Request](l *library) []Q { return sentTo[Q](l, nil) }

// sentTo are those that it has sent to a cluster.
func sentTo[Q kmsg.Request](l *library, p *Participant) (all []Q) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		if q, ok := s.req.(Q); ok && s.at == p {
			all = append(all, q)
		}
	}
	return all
}
