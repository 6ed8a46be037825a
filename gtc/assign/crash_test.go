package assign_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc/assign"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
)

// mortal is a member of a group, as the group sees a process that can be
// killed: from its death on nothing passes, and nobody says goodbye.
type mortal struct {
	*assign.Group
	at    string // the point at which it dies, if any
	died  chan struct{}
	mu    sync.Mutex
	seen  map[string]int
	conns map[net.Conn]struct{}
	owned map[int32]struct{}
}

// point is where a member dies: before or after the n-th request of a key.
func point(when string, key kmsg.Key, n int) string {
	return fmt.Sprintf("%s %s %d", when, key.Name(), n)
}

func (m *mortal) die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.died:
	default:
		close(m.died)
	}
	for c := range m.conns {
		_ = c.Close()
	}
}

func (m *mortal) dial(ctx context.Context, proto, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, proto, addr)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.died:
		return nil, errors.Join(errors.New("dead"), c.Close())
	default:
		m.conns[c] = struct{}{}
		return c, nil
	}
}

func (m *mortal) reached(when string, key int16) {
	m.mu.Lock()
	m.seen[when+kmsg.NameForKey(key)]++
	here := point(when, kmsg.Key(key), m.seen[when+kmsg.NameForKey(key)]) == m.at
	m.mu.Unlock()
	if here {
		m.die()
	}
}

// OnBrokerWrite and OnBrokerRead are kgo's hooks.
func (m *mortal) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	m.reached("sent", key)
}

func (m *mortal) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	m.reached("answered", key)
}

// Own and Disown make it the owner of its partitions.
func (m *mortal) Own(partitions ...int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range partitions {
		m.owned[p] = struct{}{}
	}
}

func (m *mortal) Disown(partitions ...int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range partitions {
		delete(m.owned, p)
	}
}

func (m *mortal) owns() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.owned)
}

// longSession is longer than anybody here waits: what happens is no work of a
// session timeout.
const longSession = patience + time.Minute

func startMortal(t *testing.T, addr, group string, id int32, at string) *mortal {
	t.Helper()
	const beat = 200 * time.Millisecond
	m := &mortal{at: at, died: make(chan struct{}), seen: map[string]int{}, conns: map[net.Conn]struct{}{}, owned: map[int32]struct{}{}}
	var err error
	m.Group, err = assign.New(assign.Options{
		ClientOpts: []kgo.Opt{
			kgo.SeedBrokers(addr), kgo.Dialer(m.dial), kgo.WithHooks(m),
			// With the heartbeats of so long a session each step would take ten seconds.
			kgo.HeartbeatInterval(beat), kgo.RetryBackoffFn(func(int) time.Duration { return beat }), kgo.RequestTimeoutOverhead(10 * time.Second),
		}, Topic: group, GroupID: group,
		Node: service.Node{ID: id, Host: "h", Port: 1 + id}, SessionTimeout: longSession, Logger: logger().With().Int32("node", id).Logger(),
	})
	if err == nil {
		err = m.Join(m)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.die()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = m.Close(ctx) // it cannot say goodbye
	})
	return m
}

// points are where node 1 is killed on its way into the group.
var points = []string{
	point("sent", kmsg.JoinGroup, 2), // the first one brings the member id
	point("answered", kmsg.JoinGroup, 2),
	point("answered", kmsg.SyncGroup, 1),
	point("sent", kmsg.Heartbeat, 1),
}

// Node 1 is killed and started again. Its former self, which the group would
// wait for, is taken out, and node 1 has its share at once. Node 2 stays all the
// time.
func startedAgain(t *testing.T, addr string, points []string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	for _, at := range points {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			group := fmt.Sprintf("group-%d", time.Now().UnixNano())
			if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 4, 1, nil, group); err != nil {
				t.Fatal(err)
			}
			two := startMortal(t, addr, group, 2, "")
			eventually(t, func() error {
				if n := two.owns(); n != 4 {
					return fmt.Errorf("node 2 alone has %d partitions, want 4", n)
				}
				return nil
			})
			former := startMortal(t, addr, group, 1, at)
			select {
			case <-former.died:
			case <-time.After(longSession):
				t.Fatal("it has not come to the point")
			}
			one := startMortal(t, addr, group, 1, "")
			eventually(t, func() error {
				if n, m := one.owns(), two.owns(); n != 2 || m != 2 {
					return fmt.Errorf("node 1, started again, has %d partitions, node 2 %d, want 2 and 2", n, m)
				}
				return nil
			})
		})
	}
}

func TestANodeThatIsStartedAgainTakesItsFormerSelfOut(t *testing.T) {
	startedAgain(t, newHome(t).addr, points)
}
