package participant

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Of a cluster that is away for a night every scan says so, and of one with a
// broker away every other request says the one and then the other.
func TestThatAClusterIsAwayIsSaidOnce(t *testing.T) {
	var out bytes.Buffer
	c := newCluster(Config{Alias: "us"}, clock, zerolog.New(&out))
	for range 1000 {
		c.note(errors.New("connection refused"))
	}
	for range 1000 {
		c.note(nil)
		c.note(errors.New("connection refused"))
	}
	c.note(nil)
	const away, back = "cannot be reached", "reached again"
	if got := out.String(); strings.Count(got, away) != 1 || strings.Count(got, back) != 1 || strings.Index(got, away) > strings.Index(got, back) {
		t.Errorf("the log is\n%s", got)
	}
	if st := c.status(); !st.Reachable || st.LastError != "" {
		t.Errorf("%+v, want reachable", st)
	}
}

// Two names of one cluster would be waited for in vain: ids expire after a look
// at as many clusters as are configured.
func TestOneClusterThatIsConfiguredTwiceIsNamed(t *testing.T) {
	a := fake(t, "A")
	c := drive(t, at("us", a.ListenAddrs()...), at("eu", a.ListenAddrs()...))
	if got := c.Aliases(); !slices.Equal(got, []string{"us", "eu"}) {
		t.Errorf("aliases %v", got)
	}
	eventually(t, func() bool {
		id, err := c.Learn(t.Context(), "us")
		_, twice := c.Learn(t.Context(), "eu")
		return id == "A" && err == nil && twice != nil && strings.Contains(twice.Error(), `"us" and "eu" are one cluster`)
	})
}

// An address that another cluster answers is no way to what was learned of it
// before: the id stays, nothing is asked of the stranger, and the cluster counts as
// not reachable until it is back.
func TestAnotherClusterBehindAnAddressIsAMismatch(t *testing.T) {
	a, b := fake(t, "A"), fake(t, "B")
	var stranger atomic.Bool
	cfg := at("eu", a.ListenAddrs()...)
	cfg.ClientOpts = append(cfg.ClientOpts, kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
		to := a.ListenAddrs()[0]
		if stranger.Load() {
			to = b.ListenAddrs()[0]
		}
		return (&net.Dialer{}).DialContext(ctx, network, to)
	}))
	c := drive(t, cfg)
	newProducer(t, "mine-a", noTimeoutDuration, a.ListenAddrs()...).write("t")
	newProducer(t, "mine-a", noTimeoutDuration, b.ListenAddrs()...).write("t")
	if open, err := c.Scan(t.Context(), "A", mine); err != nil || len(open) != 1 {
		t.Fatalf("A: %v, %v", open, err)
	}

	stranger.Store(true)
	c.all[0].drop(nil) // as when its connections break
	open, err := c.Scan(t.Context(), "A", mine)
	if other := new(errOtherCluster); len(open) > 0 || !errors.As(err, &other) || other.want != "A" || other.got != "B" {
		t.Fatalf("through the stranger: %v, %v", open, err)
	}
	if open, err := c.Scan(t.Context(), "B", mine); len(open) > 0 || err == nil {
		t.Fatalf("the stranger itself: %v, %v", open, err)
	}
	if st := c.Clusters()[0]; st.Reachable || st.ClusterID != "A" || !strings.Contains(st.LastError, `answers as cluster id "B"`) {
		t.Errorf("%+v", st)
	}

	stranger.Store(false)
	if open, err := c.Scan(t.Context(), "A", mine); err != nil || len(open) != 1 || !c.Clusters()[0].Reachable {
		t.Fatalf("A is back: %v, %v", open, err)
	}
}
