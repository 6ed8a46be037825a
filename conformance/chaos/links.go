package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/collectors"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/rs/zerolog"
)

// link is a proxy between those who dial Listen and one server.
type link struct {
	name  string
	proxy *toxiproxy.Proxy
}

// links are all proxies of a run, in this process.
type links struct {
	server *toxiproxy.ApiServer
	bytes  *collectors.ProxyMetricCollectors
	all    []*link
}

func newLinks() *links {
	m := toxiproxy.NewMetricsContainer(prometheus.NewRegistry())
	m.ProxyMetrics = collectors.NewProxyMetricCollectors()
	return &links{server: toxiproxy.NewServer(m, zerolog.Nop()), bytes: m.ProxyMetrics}
}

// add starts a proxy.
func (ls *links) add(name, listen, upstream string) (*link, error) {
	p := toxiproxy.NewProxy(ls.server, name, listen, upstream)
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("chaos: proxy %s: %w", name, err)
	}
	l := &link{name: name, proxy: p}
	ls.all = append(ls.all, l)
	return l, nil
}

func (ls *links) stop() {
	for _, l := range ls.all {
		l.proxy.Stop()
	}
}

// idle names the links through which nothing has passed in one direction. A
// fault on such a link proves nothing: the traffic goes another way. Bytes are
// counted when a connection ends, so ask after stop.
func (ls *links) idle() []string {
	var names []string
	for _, l := range ls.all {
		for _, direction := range []string{"upstream", "downstream"} {
			if ls.received(l, direction) == 0 {
				names = append(names, l.name+" "+direction)
			}
		}
	}
	return names
}

func (ls *links) received(l *link, direction string) float64 {
	var m dto.Metric
	counter := ls.bytes.ReceivedBytesTotal.WithLabelValues(direction, l.name, l.proxy.Listen, l.proxy.Upstream)
	if err := counter.Write(&m); err != nil {
		return 0
	}
	return m.GetCounter().GetValue()
}

// awaitTraffic waits until every connection's bytes have been counted, or some
// time has passed, and returns the links that carried nothing.
func (ls *links) awaitTraffic(ctx context.Context) []string {
	for range 50 {
		if len(ls.idle()) == 0 {
			break
		}
		sleep(ctx, 20*time.Millisecond)
	}
	return ls.idle()
}

// spoil is a way to spoil a link.
type spoil string

// The ways.
const (
	// cut closes all connections and refuses new ones.
	cut spoil = "cut"
	// hole takes everything and passes nothing on, in both directions.
	hole spoil = "black hole"
	// deaf passes requests on and loses the answers.
	deaf spoil = "answers lost"
	// slow delays everything by 100 to 500 ms.
	slow spoil = "slow"
	// reset ends every connection at its next byte.
	reset spoil = "reset"
)

var spoils = []spoil{cut, hole, deaf, slow, reset}

func (l *link) spoil(how spoil) error {
	switch how {
	case cut:
		l.proxy.Stop()
		return nil
	case hole:
		return errors.Join(l.toxic("timeout", "upstream", ""), l.toxic("timeout", "downstream", ""))
	case deaf:
		return l.toxic("timeout", "downstream", "")
	case slow:
		const late = `"latency":300,"jitter":200`
		return errors.Join(l.toxic("latency", "upstream", late), l.toxic("latency", "downstream", late))
	case reset:
		return l.toxic("reset_peer", "upstream", "")
	}
	return fmt.Errorf("chaos: no way %q to spoil a link", how)
}

func (l *link) toxic(kind, stream, attributes string) error {
	_, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(
		`{"name":%q,"type":%q,"stream":%q,"attributes":{%s}}`, kind+"-"+stream, kind, stream, attributes)))
	if err != nil {
		return fmt.Errorf("chaos: link %s: %w", l.name, err)
	}
	return nil
}

// heal makes the link good again. Connections that went through a hole are
// closed: bytes are missing in them.
func (l *link) heal(ctx context.Context) error {
	l.proxy.Toxics.ResetToxics(ctx)
	err := l.proxy.Start()
	if err != nil && !errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
		return fmt.Errorf("chaos: link %s: %w", l.name, err)
	}
	return nil
}

// ports finds n ports that nobody listens on, below those that the system gives
// to outgoing connections: a server that is down must get its own back.
func ports(ctx context.Context, pick func(n int) int, n int) ([]int, error) {
	var found []int
	taken := map[int]bool{}
	for tries := 0; len(found) < n; tries++ {
		if tries == 1000 {
			return nil, errors.New("chaos: found no free ports between 10000 and 20000")
		}
		port := 10_000 + pick(10_000)
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", local(port))
		if err != nil || taken[port] {
			continue
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
		taken[port] = true
		found = append(found, port)
	}
	return found, nil
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
