package participant

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc"
)

// describeConfigs answers with the settings of each resource, or an error.
func describeConfigs(asked *atomic.Int32, of map[string]map[string]string, errs map[string]*kerr.Error) func(*kmsg.DescribeConfigsRequest) kmsg.Response {
	return func(req *kmsg.DescribeConfigsRequest) kmsg.Response {
		asked.Add(1)
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, r := range req.Resources {
			one := kmsg.NewDescribeConfigsResponseResource()
			one.ResourceType, one.ResourceName = r.ResourceType, r.ResourceName
			if err := errs[r.ResourceName]; err != nil {
				one.ErrorCode = err.Code
			}
			for name, value := range of[r.ResourceName] {
				c := kmsg.NewDescribeConfigsResponseResourceConfig()
				c.Name, c.Value = name, kmsg.StringPtr(value)
				one.Configs = append(one.Configs, c)
			}
			resp.Resources = append(resp.Resources, one)
		}
		return resp
	}
}

// learnt connects, and has transactions seen that wrote to the topics.
func learnt(t *testing.T, c *Clusters, topics ...string) {
	t.Helper()
	eventually(t, func() bool { id, err := c.Learn(t.Context(), "a"); return err == nil && id == "A" })
	for _, topic := range topics {
		c.all[0].retention.wrote([]kmsg.DescribeTransactionsResponseTransactionStateTopic{{Topic: topic, Partitions: []int32{0}}})
	}
}

func TestRetentionIsTheShortestThatTheClusterHas(t *testing.T) {
	var asked atomic.Int32
	a := fake(t, "A")
	answer(a, 32, describeConfigs(&asked, map[string]map[string]string{
		"0":       {idExpirationMillis: "86400000"},
		"short":   {retentionMillis: "5000", cleanupPolicy: "delete"},
		"both":    {retentionMillis: "7000", cleanupPolicy: "compact,delete"},
		"compact": {retentionMillis: "1", cleanupPolicy: "compact"},
		"forever": {retentionMillis: "-1", cleanupPolicy: "delete"},
	}, map[string]*kerr.Error{"gone": kerr.UnknownTopicOrPartition}))
	now := gtc.Time{Mono: 1}
	c, err := New(Options{Clusters: []Config{at("a", a.ListenAddrs()...)}, Clock: func() gtc.Time { return now }, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	learnt(t, c, "short", "both", "compact", "forever", "gone")
	for range 3 { // it is asked once
		got, err := c.Retention(t.Context(), "A")
		if err != nil {
			t.Fatal(err)
		}
		if got.IDExpirationMillis != 86_400_000 || !maps.Equal(got.TopicMillis, map[string]int64{"short": 5000, "both": 7000}) {
			t.Errorf("%+v", got)
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("%d requests, want one for the broker and one for the topics", n)
	}
	if _, kept := c.all[0].retention.topics["gone"]; kept {
		t.Error("a topic that is gone is remembered")
	}
	now.Mono += retentionEvery.Milliseconds()
	if _, err := c.Retention(t.Context(), "A"); err != nil || asked.Load() != 4 {
		t.Errorf("%d requests, want a second look after %v; %v", asked.Load(), retentionEvery, err)
	}
}

func TestRetentionThatMayNotBeSeenIsSaidOnce(t *testing.T) {
	var asked atomic.Int32
	var out bytes.Buffer
	a := fake(t, "A")
	answer(a, 32, describeConfigs(&asked, nil, map[string]*kerr.Error{"0": kerr.ClusterAuthorizationFailed, "t": kerr.TopicAuthorizationFailed}))
	now := gtc.Time{Mono: 1}
	c, err := New(Options{Clusters: []Config{at("a", a.ListenAddrs()...)}, Clock: func() gtc.Time { return now }, Logger: zerolog.New(&out)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	learnt(t, c, "t")
	for range 3 {
		got, err := c.Retention(t.Context(), "A")
		if err != nil || got.IDExpirationMillis != -1 || len(got.TopicMillis) > 0 {
			t.Errorf("%+v, %v: want nothing known, and no error", got, err)
		}
		now.Mono += retentionEvery.Milliseconds()
	}
	for _, setting := range []string{idExpirationMillis, retentionMillis} {
		if n := strings.Count(out.String(), `"setting":"`+setting+`"`); n != 1 || !strings.Contains(out.String(), `"level":"info"`) {
			t.Errorf("%s is named %d times, want once at info:\n%s", setting, n, out.String())
		}
	}
}

// The topics are those of the transactions that were looked at, and bounded.
func TestTheTopicsOfALookAreRemembered(t *testing.T) {
	a := fake(t, "A")
	c := drive(t, at("a", a.ListenAddrs()...))
	p := newProducer(t, "tid", noTimeoutDuration, a.ListenAddrs()...)
	p.write("t")
	prepared(t, c, "tid", p.ref("A"))
	got, err := c.Retention(t.Context(), "A")
	if _, seen := got.TopicMillis["t"]; err != nil || !seen {
		t.Errorf("%+v, %v: want the retention of t", got, err)
	}
	r := &retention{}
	for i := range 2 * topicsKept {
		r.wrote([]kmsg.DescribeTransactionsResponseTransactionStateTopic{{Topic: fmt.Sprint(i)}})
	}
	if len(r.topics) != topicsKept {
		t.Errorf("%d topics are remembered, want %d at most", len(r.topics), topicsKept)
	}
}

// The address of a configured cluster leads to another one: it is not reachable.
func TestAClusterWhoseAddressIsAnothersIsNotReachable(t *testing.T) {
	a := fake(t, "A")
	cfg := at("b", a.ListenAddrs()...)
	cfg.ExpectedClusterID = "B"
	c := drive(t, cfg)
	if st := c.Clusters(); len(st) != 1 || st[0].Alias != "b" || st[0].Reachable {
		t.Errorf("at the start: %+v, want one that is not reached yet", st)
	}
	for range 3 {
		if _, err := c.Scan(t.Context(), "B", func(string) bool { return true }); err == nil {
			t.Fatal("the scan of another cluster is no error")
		}
		if st := c.Clusters()[0]; st.Reachable || !strings.Contains(st.LastError, `answers as cluster id "A", and the cluster was "B"`) {
			t.Errorf("%+v, want a mismatch", st)
		}
	}
}
