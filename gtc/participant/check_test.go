package participant

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc"
)

func TestCheck(t *testing.T) {
	ok := fake(t, "A")
	plain := fake(t, "P", kfake.BrokerConfigs(map[string]string{maxTimeoutMillis: "900000"}))
	other := fake(t, "other")
	denied := fake(t, "D")
	answer(denied, keyEndTxn, func(req *kmsg.EndTxnRequest) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		return resp
	})
	hidden := fake(t, "H")
	answer(hidden, 32, func(req *kmsg.DescribeConfigsRequest) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		r := kmsg.NewDescribeConfigsResponseResource()
		r.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		resp.Resources = append(resp.Resources, r)
		return resp
	})
	moved := at("moved", other.ListenAddrs()...)
	moved.ExpectedClusterID = "M"
	dead := at("dead", blackHole(t))
	dead.ExpectedClusterID, dead.RequestTimeout = "dead", 300*time.Millisecond
	c := drive(t, at("a", ok.ListenAddrs()...), at("plain", plain.ListenAddrs()...), moved,
		at("denied", denied.ListenAddrs()...), at("hidden", hidden.ListenAddrs()...), dead)

	ids := []string{"A", "P", "M", "D", "H", "dead", "nobody"}
	for i, want := range []struct {
		code   gtc.CheckCode
		detail string
	}{
		{gtc.CheckOK, ""},
		{gtc.CheckNotOptedIn, "transaction.max.timeout.ms=2147483647"},
		{gtc.CheckClusterIDMismatch, `answers as cluster id "other"`},
		{gtc.CheckUnauthorized, `WRITE on transactional id "tid"`},
		{gtc.CheckOK, "DESCRIBE_CONFIGS"},
		{gtc.CheckUnavailable, `"dead"`},
		{gtc.CheckUnknownCluster, "a=A"},
	} {
		got := c.Check(t.Context(), "tid", ids[i:i+1])[0]
		if got.Code != want.code || got.ClusterID != ids[i] {
			t.Errorf("%s: %+v, want code %d", ids[i], got, want.code)
		}
		contains(t, got.Detail, want.detail)
	}
}

func expect(c Config, id string) Config {
	c.ExpectedClusterID = id
	return c
}

// Until every configured cluster has told its id, one that is away may be it.
func TestAnIDThatAnUnreachedClusterMayHaveIsNotUnknown(t *testing.T) {
	a := fake(t, "A")
	dead := at("dead", blackHole(t))
	dead.RequestTimeout = 300 * time.Millisecond
	c := drive(t, at("a", a.ListenAddrs()...), dead)
	if got := c.Check(t.Context(), "tid", []string{"X"})[0]; got.Code != gtc.CheckUnavailable {
		t.Errorf("%+v, want unavailable", got)
	}
	if got := c.Check(t.Context(), "tid", []string{"A"})[0]; got.Code != gtc.CheckOK {
		t.Errorf("%+v, want ok", got)
	}

	// The one that is away delays nobody who asks for another.
	slow, back := away(t, "slow", "C")
	c = drive(t, at("a", a.ListenAddrs()...), slow)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if got := c.Check(ctx, "tid", []string{"A"})[0]; got.Code != gtc.CheckOK {
		t.Errorf("beside one that is waited for: %+v, want ok", got)
	}
	back(c)
}

// The probe for authorisation must change nothing, whatever is open.
func TestTheProbeIsHarmless(t *testing.T) {
	a := fake(t, "A")
	c := drive(t, at("a", a.ListenAddrs()...))
	p := newProducer(t, "tid", noTimeoutDuration, a.ListenAddrs()...)
	p.write("t")
	ref := p.ref("A")
	if got := c.Check(t.Context(), "tid", []string{"A"})[0]; got.Code != gtc.CheckOK {
		t.Fatalf("%+v, want ok", got)
	}
	prepared(t, c, "tid", ref)
}

func TestConfigurationIsRefusedByName(t *testing.T) {
	for _, tc := range []struct {
		says string
		cfgs []Config
	}{
		{"no alias", []Config{{}}},
		{`"a" is configured twice`, []Config{at("a", "127.0.0.1:1"), at("a", "127.0.0.1:1")}},
		{`"a" and "b" expect the same cluster id`, []Config{expect(at("a", "127.0.0.1:1"), "X"), expect(at("b", "127.0.0.1:1"), "X")}},
		{`"a": request timeout`, []Config{{Alias: "a", RequestTimeout: -1}}},
		{`"a"`, []Config{{Alias: "a", ClientOpts: []kgo.Opt{kgo.SeedBrokers()}}}},
	} {
		_, err := New(Options{Clusters: tc.cfgs, Clock: clock, Logger: zerolog.Nop()})
		if err == nil {
			t.Errorf("no error that says %q", tc.says)
			continue
		}
		contains(t, err.Error(), tc.says)
	}
	if _, err := New(Options{}); err == nil {
		t.Error("no error without a clock")
	}
}
