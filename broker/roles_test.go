package broker_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// ranges gives what ApiVersions says of some keys: "key:min-max".
func ranges(resp *kmsg.ApiVersionsResponse, keys ...int16) string {
	var out []string
	for _, k := range resp.ApiKeys {
		if slices.Contains(keys, k.ApiKey) || k.ApiKey >= 1000 {
			out = append(out, fmt.Sprintf("%d:%d-%d", k.ApiKey, k.MinVersion, k.MaxVersion))
		}
	}
	return strings.Join(out, " ")
}

func apiVersionsRequest(version int16) *kmsg.ApiVersionsRequest {
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = version, "test", "1"
	return req
}

func TestApiVersionsShowWhatTheRolesServe(t *testing.T) {
	const ours = " 1000:0-0 1001:0-0 1002:0-0 1003:0-0 1004:0-0"
	for name, c := range map[string]struct {
		overrides []string
		gtc       bool
		want      string
	}{
		"broker":                 {want: "10:0-6 22:0-5"},
		"broker, two-phase":      {overrides: []string{"transaction.two.phase.commit.enable=true"}, want: "10:0-6 22:0-5"},
		"broker, unstable":       {overrides: []string{"unstable.api.versions.enable=true"}, want: "10:0-6 22:0-6"},
		"broker and gtc":         {overrides: bothRoles, gtc: true, want: "10:0-7 22:0-5" + ours},
		"broker and gtc, v6 too": {overrides: append([]string{"unstable.api.versions.enable=true"}, bothRoles...), gtc: true, want: "10:0-7 22:0-6" + ours},
	} {
		t.Run(name, func(t *testing.T) {
			var opts []nodeOption
			if c.gtc {
				opts = append(opts, withCoordinator(echo))
			}
			n := startNode(t, c.overrides, opts...)
			for version := range int16(5) {
				resp := ask[*kmsg.ApiVersionsResponse](t, n.dial(t), apiVersionsRequest(version))
				if got := ranges(resp, 10, 22); resp.ErrorCode != 0 || got != c.want {
					t.Errorf("version %d: error %d, %q, want %q", version, resp.ErrorCode, got, c.want)
				}
			}
			resp := ask[*kmsg.ApiVersionsResponse](t, n.dial(t), apiVersionsRequest(4))
			if len(resp.FinalizedFeatures) == 0 || len(resp.ApiKeys) < 50 {
				t.Errorf("kfake's own answer is lost: %d features, %d keys", len(resp.FinalizedFeatures), len(resp.ApiKeys))
			}
		})
	}
}

func TestANewerClientIsToldTheVersionsToAskIn(t *testing.T) {
	for _, roles := range [][]string{nil, {"unstable.api.versions.enable=true"}} {
		c := startNode(t, roles).dial(t)
		// The body of a version that nobody knows cannot be read.
		c.send([]byte{0, 0, 0, 15, 0, 18, 0, 77, 0, 0, 0, 9, 0, 1, 'x', 0xff, 0xff, 0xff, 0xff})
		id, rest, err := c.receive()
		if err != nil || id != 9 {
			t.Fatalf("id %d, %v", id, err)
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		if err := resp.ReadFrom(rest); err != nil {
			t.Fatal(err)
		}
		if len(resp.ApiKeys) != 1 || resp.ErrorCode != kerr.UnsupportedVersion.Code || resp.ApiKeys[0].ApiKey != 18 || resp.ApiKeys[0].MaxVersion < 3 {
			t.Errorf("%+v", resp)
		}
		if v := ask[*kmsg.ApiVersionsResponse](t, c, apiVersionsRequest(3)); v.ErrorCode != 0 {
			t.Errorf("the connection is not served any more: %d", v.ErrorCode)
		}
	}
}

func TestTheCoordinatorsKeysReachTheCoordinator(t *testing.T) {
	n := startNode(t, bothRoles, withCoordinator(echo))
	cl := n.client(t)
	for _, api := range wire.APIs() {
		if api.Key < 1000 {
			continue
		}
		req, _ := wire.RequestForKey(api.Key, api.MaxVersion)
		resp, err := cl.Broker(0).Request(t.Context(), req)
		if err != nil || resp.Key() != api.Key {
			t.Errorf("%s: %v", api.Name, err)
		}
	}
}

func TestWithoutTheRoleTheCoordinatorsKeysAreUnknown(t *testing.T) {
	n := startNode(t, nil)
	for _, api := range wire.APIs() {
		req, _ := wire.RequestForKey(api.Key, api.MaxVersion)
		c := n.dial(t)
		c.send(frameOf(req, 1))
		if _, _, err := c.receive(); err == nil {
			t.Errorf("%s is answered", api.Name)
		}
	}
	n.serves(t)
}

func TestFindCoordinatorKnowsGlobalTransactionsInVersion7Only(t *testing.T) {
	n := startNode(t, bothRoles, withCoordinator(echo))
	c := n.dial(t)

	req := wire.NewPtrFindCoordinatorRequest()
	req.CoordinatorType = wire.CoordinatorTypeGlobalTransaction
	req.CoordinatorKeys = []string{"orders", "loading", "lost", ""}
	resp := ask[*wire.FindCoordinatorResponse](t, c, req)
	var got []string
	for _, f := range resp.Coordinators {
		got = append(got, fmt.Sprintf("%s=%d %s:%d %d", f.Key, f.NodeID, f.Host, f.Port, f.ErrorCode))
	}
	want := []string{"orders=0 127.0.0.1:9 0", "loading=-1 :-1 14", "lost=-1 :-1 15", "=-1 :-1 42"}
	if !slices.Equal(got, want) {
		t.Errorf("version 7:\n%q, want\n%q", got, want)
	}

	for version := int16(1); version <= 6; version++ {
		old := kmsg.NewPtrFindCoordinatorRequest()
		old.Version, old.CoordinatorType = version, wire.CoordinatorTypeGlobalTransaction
		old.CoordinatorKey, old.CoordinatorKeys = "orders", []string{"orders"}
		r := ask[*kmsg.FindCoordinatorResponse](t, c, old)
		code := r.ErrorCode
		if version >= 4 {
			code = r.Coordinators[0].ErrorCode
		}
		if code != kerr.InvalidRequest.Code {
			t.Errorf("version %d: error %d, want INVALID_REQUEST", version, code)
		}
	}

	for kind, key := range map[int8]string{0: "group", 1: "txn", 2: "g:AAAAAAAAAAAAAAAAAAAAAA:0"} {
		req := wire.NewPtrFindCoordinatorRequest()
		req.CoordinatorType, req.CoordinatorKeys = kind, []string{key, key + "0"}
		r := ask[*wire.FindCoordinatorResponse](t, c, req)
		for i, f := range r.Coordinators {
			if f.ErrorCode != 0 || f.NodeID != 0 || fmt.Sprintf("%s:%d", f.Host, f.Port) != n.addr || !strings.HasPrefix(f.Key, key) {
				t.Errorf("version 7, type %d, key %d: %+v", kind, i, f)
			}
		}
	}
}

// initResult is what an InitProducerId gave, in either version.
type initResult struct {
	code  int16
	id    int64
	epoch int16
}

func initV6(t *testing.T, c *raw, change func(*wire.InitProducerIDRequestV6)) initResult {
	t.Helper()
	req := wire.NewPtrInitProducerIDRequestV6()
	req.TransactionalID, req.TransactionTimeoutMillis = kmsg.StringPtr("tid"), 60000
	change(req)
	r := ask[*wire.InitProducerIDResponseV6](t, c, req)
	if r.OngoingTxnProducerID != -1 || r.OngoingTxnProducerEpoch != -1 {
		t.Errorf("an ongoing transaction in %+v", r)
	}
	return initResult{r.ErrorCode, r.ProducerID, r.ProducerEpoch}
}

func initOld(t *testing.T, c *raw, version int16, change func(*kmsg.InitProducerIDRequest)) initResult {
	t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = version, kmsg.StringPtr("tid"), 60000
	change(req)
	r := ask[*kmsg.InitProducerIDResponse](t, c, req)
	return initResult{r.ErrorCode, r.ProducerID, r.ProducerEpoch}
}

func TestInitProducerIdFollowsKafkasRules(t *testing.T) {
	refused := kerr.TransactionalIDAuthorizationFailed.Code
	for name, c := range map[string]struct {
		twoPhase bool
		max      string
		change   func(*wire.InitProducerIDRequestV6)
		code     int16
	}{
		"plain":                         {change: func(*wire.InitProducerIDRequestV6) {}},
		"plain, flag on":                {twoPhase: true, change: func(*wire.InitProducerIDRequestV6) {}},
		"two-phase, flag off":           {change: func(r *wire.InitProducerIDRequestV6) { r.Enable2PC = true }, code: refused},
		"two-phase, flag on":            {twoPhase: true, change: func(r *wire.InitProducerIDRequestV6) { r.Enable2PC = true }},
		"two-phase, silly timeout":      {twoPhase: true, change: func(r *wire.InitProducerIDRequestV6) { r.Enable2PC, r.TransactionTimeoutMillis = true, -5 }},
		"two-phase, long timeout":       {twoPhase: true, change: func(r *wire.InitProducerIDRequestV6) { r.Enable2PC, r.TransactionTimeoutMillis = true, math.MaxInt32 }},
		"keep prepared, flag off":       {change: func(r *wire.InitProducerIDRequestV6) { r.KeepPreparedTxn = true }, code: refused},
		"keep prepared, flag on":        {twoPhase: true, change: func(r *wire.InitProducerIDRequestV6) { r.Enable2PC, r.KeepPreparedTxn = true, true }},
		"keep prepared, own timeout":    {twoPhase: true, change: func(r *wire.InitProducerIDRequestV6) { r.KeepPreparedTxn = true }},
		"both, flag off":                {change: func(r *wire.InitProducerIDRequestV6) { r.Enable2PC, r.KeepPreparedTxn = true, true }, code: refused},
		"timeout above the limit":       {change: func(r *wire.InitProducerIDRequestV6) { r.TransactionTimeoutMillis = 900001 }, code: kerr.InvalidTransactionTimeout.Code},
		"timeout above, flag on":        {twoPhase: true, change: func(r *wire.InitProducerIDRequestV6) { r.TransactionTimeoutMillis = 900001 }, code: kerr.InvalidTransactionTimeout.Code},
		"no timeout, limit lifted":      {max: "2147483647", change: func(r *wire.InitProducerIDRequestV6) { r.TransactionTimeoutMillis = math.MaxInt32 }},
		"timeout zero":                  {change: func(r *wire.InitProducerIDRequestV6) { r.TransactionTimeoutMillis = 0 }, code: kerr.InvalidTransactionTimeout.Code},
		"empty id":                      {change: func(r *wire.InitProducerIDRequestV6) { r.TransactionalID = kmsg.StringPtr("") }, code: kerr.InvalidRequest.Code},
		"no id":                         {change: func(r *wire.InitProducerIDRequestV6) { r.TransactionalID, r.TransactionTimeoutMillis = nil, 0 }},
		"no id, two-phase":              {change: func(r *wire.InitProducerIDRequestV6) { r.TransactionalID, r.Enable2PC = nil, true }},
		"producer id without its epoch": {change: func(r *wire.InitProducerIDRequestV6) { r.ProducerID = 1 }, code: kerr.InvalidRequest.Code},
		"epoch without producer id":     {change: func(r *wire.InitProducerIDRequestV6) { r.ProducerEpoch = 1 }, code: kerr.InvalidRequest.Code},
	} {
		t.Run(name, func(t *testing.T) {
			overrides := []string{"unstable.api.versions.enable=true", fmt.Sprintf("transaction.two.phase.commit.enable=%t", c.twoPhase)}
			if c.max != "" {
				overrides = append(overrides, "transaction.max.timeout.ms="+c.max)
			}
			conn := startNode(t, overrides).dial(t)
			v6 := initV6(t, conn, c.change)
			if v6.code != c.code || (v6.id >= 0) != (c.code == 0) {
				t.Errorf("version 6: %+v, want error %d", v6, c.code)
			}
			template := wire.NewPtrInitProducerIDRequestV6()
			template.TransactionalID, template.TransactionTimeoutMillis = kmsg.StringPtr("tid"), 60000
			if c.change(template); template.Enable2PC || template.KeepPreparedTxn {
				return
			}
			v5 := initOld(t, conn, 5, func(r *kmsg.InitProducerIDRequest) {
				r.TransactionalID, r.TransactionTimeoutMillis = template.TransactionalID, template.TransactionTimeoutMillis
				r.ProducerID, r.ProducerEpoch = template.ProducerID, template.ProducerEpoch
			})
			if v5.code != c.code || (v5.id >= 0) != (c.code == 0) {
				t.Errorf("version 5: %+v, want error %d", v5, c.code)
			}
		})
	}
}

func TestATwoPhaseTransactionHasNoTimeout(t *testing.T) {
	n := startNode(t, []string{"unstable.api.versions.enable=true", "transaction.two.phase.commit.enable=true"})
	cl := n.client(t)
	createTopic(t, cl, "t")
	p := initV6(t, n.dial(t), func(r *wire.InitProducerIDRequestV6) { r.Enable2PC, r.TransactionTimeoutMillis = true, 1 })
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = "tid", p.id, p.epoch
	topic := kmsg.NewAddPartitionsToTxnRequestTopic()
	topic.Topic, topic.Partitions = "t", []int32{0}
	add.Topics = append(add.Topics, topic)
	add.Version = 3
	if r := ask[*kmsg.AddPartitionsToTxnResponse](t, n.dial(t), add); r.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("%+v", r)
	}
	got, err := kadm.NewClient(cl).DescribeTransactions(t.Context(), "tid")
	if err != nil {
		t.Fatal(err)
	}
	if d := got["tid"]; d.State != "Ongoing" || d.TimeoutMillis != math.MaxInt32 || d.ProducerID != p.id || d.ProducerEpoch != p.epoch {
		t.Errorf("%+v", d)
	}
	again := initOld(t, n.dial(t), 5, func(*kmsg.InitProducerIDRequest) {})
	if again.code != 0 || again.id != p.id || again.epoch <= p.epoch {
		t.Errorf("a second initialisation does not fence the first: %+v after %+v", again, p)
	}
}

func createTopic(tb testing.TB, cl *kgo.Client, topic string) {
	tb.Helper()
	if _, err := kadm.NewClient(cl).CreateTopic(tb.Context(), 2, 1, nil, topic); err != nil {
		tb.Fatal(err)
	}
}

func describeBroker(t *testing.T, cl *kgo.Client, broker string, names ...string) map[string]kmsg.DescribeConfigsResponseResourceConfig {
	t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeBroker, broker, names
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(t.Context(), cl.Broker(0))
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Resources) != 1 || resp.Resources[0].ErrorCode != 0 {
		t.Fatalf("%+v", resp)
	}
	out := make(map[string]kmsg.DescribeConfigsResponseResourceConfig)
	for _, c := range resp.Resources[0].Configs {
		if _, twice := out[c.Name]; twice {
			t.Errorf("%s is there twice", c.Name)
		}
		out[c.Name] = c
	}
	return out
}

func TestDescribeConfigsShowsTheOptIn(t *testing.T) {
	const maxTimeout, twoPhase = "transaction.max.timeout.ms", "transaction.two.phase.commit.enable"
	for _, on := range []string{"false", "true"} {
		cl := startNode(t, []string{twoPhase + "=" + on, maxTimeout + "=1234"}).client(t)
		for _, names := range [][]string{nil, {maxTimeout, twoPhase}} {
			got := describeBroker(t, cl, "0", names...)
			if m, p := got[maxTimeout], got[twoPhase]; m.Value == nil || *m.Value != "1234" || p.Value == nil || *p.Value != on ||
				!m.ReadOnly || !p.ReadOnly || m.Source != kmsg.ConfigSourceStaticBrokerConfig {
				t.Errorf("two-phase %s, names %v: %+v %+v", on, names, m, p)
			}
			if (len(got) == 2) != (names != nil) {
				t.Errorf("names %v gave %d settings", names, len(got))
			}
		}
		if got := describeBroker(t, cl, "0", "log.dir"); len(got) > 1 || got[maxTimeout].Name != "" {
			t.Errorf("only log.dir was asked for: %v", got)
		}
		if got := describeBroker(t, cl, ""); got[maxTimeout].Name != "" {
			t.Errorf("the cluster's defaults show a broker's setting: %v", got[maxTimeout])
		}
	}
}

func TestTheOptInCannotBeChangedWhileRunning(t *testing.T) {
	n := startNode(t, []string{"unstable.api.versions.enable=true", "transaction.two.phase.commit.enable=true"})
	adm := kadm.NewClient(n.client(t))
	change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "transaction.max.timeout.ms", Value: kmsg.StringPtr("1")}}
	allowed := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "message.max.bytes", Value: kmsg.StringPtr("2000000")}}

	alter := func(alter func() (kadm.AlterConfigsResponses, error), want error) {
		t.Helper()
		rs, err := alter()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rs {
			if r.Err != want { //nolint:errorlint // nil is one of the values
				t.Errorf("%s: %v, want %v", r.Name, r.Err, want)
			}
		}
		if len(rs) != 1 {
			t.Errorf("%d answers", len(rs))
		}
	}
	alter(func() (kadm.AlterConfigsResponses, error) { return adm.AlterBrokerConfigs(t.Context(), change, 0) }, kerr.InvalidRequest)
	alter(func() (kadm.AlterConfigsResponses, error) { return adm.AlterBrokerConfigs(t.Context(), allowed, 0) }, nil)
	alter(func() (kadm.AlterConfigsResponses, error) { return adm.AlterBrokerConfigsState(t.Context(), change, 0) }, kerr.InvalidRequest)
	// This one replaces all of a broker's settings, and must not take kfake's own.
	alter(func() (kadm.AlterConfigsResponses, error) {
		return adm.AlterBrokerConfigsState(t.Context(), allowed, 0)
	}, nil)

	if got := initV6(t, n.dial(t), func(r *wire.InitProducerIDRequestV6) { r.Enable2PC = true }); got.code != 0 {
		t.Errorf("two-phase commit does not work any more: %+v", got)
	}
	if got := *describeBroker(t, n.client(t), "0", "transaction.max.timeout.ms")["transaction.max.timeout.ms"].Value; got != "900000" {
		t.Errorf("transaction.max.timeout.ms shows %s", got)
	}
}

// nodes is a Coordinator of several nodes.
type nodes struct {
	coordinator
	list []broker.Node
}

func (n nodes) Nodes() []broker.Node { return n.list }

func TestACoordinatorAloneServesItsKeysAndMetadata(t *testing.T) {
	n := startCoordinatorOnly(t)
	c := n.dial(t)
	versions := ask[*kmsg.ApiVersionsResponse](t, c, apiVersionsRequest(3))
	if got, want := ranges(versions, 0, 1, 3, 10, 18, 22), "3:0-13 10:0-7 18:0-4 1000:0-0 1001:0-0 1002:0-0 1003:0-0 1004:0-0"; got != want {
		t.Errorf("serves %q, want %q", got, want)
	}
	cl := n.client(t)
	meta, err := kadm.NewClient(cl).Metadata(t.Context(), "topic")
	if err != nil {
		t.Fatal(err)
	}
	if len(meta.Brokers) != 2 || meta.Brokers[1].NodeID != 8 || meta.Topics["topic"].Err != kerr.UnknownTopicOrPartition { //nolint:errorlint // the very value
		t.Errorf("%+v", meta)
	}
	if _, err := cl.Broker(7).Request(t.Context(), wire.NewPtrListGlobalTransactionsRequest()); err != nil {
		t.Error(err)
	}
	find := wire.NewPtrFindCoordinatorRequest()
	find.CoordinatorType, find.CoordinatorKeys = 0, []string{"group"}
	if r := ask[*wire.FindCoordinatorResponse](t, c, find); r.Coordinators[0].ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("a group's coordinator: %+v", r)
	}
	for version := range int16(7) {
		old := kmsg.NewPtrFindCoordinatorRequest()
		old.Version, old.CoordinatorType, old.CoordinatorKey, old.CoordinatorKeys = version, 0, "g", []string{"g"}
		r := ask[*kmsg.FindCoordinatorResponse](t, c, old)
		if version < 4 && r.ErrorCode != kerr.InvalidRequest.Code || version >= 4 && r.Coordinators[0].ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("version %d: %+v", version, r)
		}
	}
	for version := range int16(14) {
		req := kmsg.NewPtrMetadataRequest()
		req.Version = version
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr("t")
		req.Topics = append(req.Topics, topic)
		if r := ask[*kmsg.MetadataResponse](t, c, req); len(r.Brokers) != 2 || r.Topics[0].ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("Metadata version %d: %+v", version, r)
		}
	}
	unserved := n.dial(t)
	unserved.send(frameOf(kmsg.NewPtrListGroupsRequest(), 1))
	if _, _, err := unserved.receive(); err == nil {
		t.Error("a coordinator answers for groups")
	}
}

func startCoordinatorOnly(t *testing.T) *node {
	t.Helper()
	cfg, err := config.Load("", []string{
		"process.roles=gtc", "node.id=7", "gtc.clusters=us", "gtc.cluster.us.bootstrap.servers=us:1", "gtc.home.bootstrap.servers=home:1",
	})
	if err != nil {
		t.Fatal(err)
	}
	return startConfigured(t, cfg, func(o *broker.Options) {
		o.Coordinator = nodes{echo, []broker.Node{o.Node, {ID: 8, Host: "127.0.0.1", Port: 1}}}
	})
}
