package broker_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/broker/internal/attacktest"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// served are the keys and versions of a node, as ApiVersions shows them.
func served(t *testing.T, r *raw) map[int16][]int16 {
	t.Helper()
	keys := make(map[int16][]int16)
	for _, k := range ask[*kmsg.ApiVersionsResponse](t, r, apiVersionsRequest(3)).ApiKeys {
		for v := k.MinVersion; v <= k.MaxVersion; v++ {
			keys[k.ApiKey] = append(keys[k.ApiKey], v)
		}
	}
	return keys
}

// A request that the next kfake serves has to be thought about.
func TestWhatIsServedHasAPolicy(t *testing.T) {
	n := startNode(t, []string{"process.roles=broker,gtc", "unstable.api.versions.enable=true"}, withCoordinator(echo))
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.addr), kgo.Dialer(n.embedded.Dial))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	kfakes, err := kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	keys := served(t, n.dial(t))
	for _, k := range kfakes.ApiKeys {
		if _, ok := broker.AsksOf(k.ApiKey); !ok && kmsg.RequestForKey(k.ApiKey) != nil {
			t.Errorf("kfake serves %s (key %d), which has no policy", kmsg.NameForKey(k.ApiKey), k.ApiKey)
		}
	}
	for key := range int16(400) {
		asks, ok := broker.AsksOf(key)
		if _, is := keys[key]; is != ok {
			t.Errorf("%s (key %d): served %v, has a policy %v", wire.NameForKey(key), key, is, ok)
		}
		if ok && (len(asks.On) > 0) == (asks.Hides || asks.Free) {
			t.Errorf("%s (key %d): who may? %+v", wire.NameForKey(key), key, asks)
		}
	}
}

// The decision log, what the coordinator claims it with, and what kfake keeps
// for the node are changed by no request of a client, whatever it names.
func TestNoRequestChangesWhatIsTheNodesOwn(t *testing.T) {
	n := startNode(t, []string{"process.roles=broker,gtc", "unstable.api.versions.enable=true", "transaction.two.phase.commit.enable=true"}, withCoordinator(echo))
	own, err := kgo.NewClient(
		kgo.SeedBrokers(n.addr), kgo.Dialer(n.embedded.Dial), kgo.TransactionalID("__gtc-0"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	admin := kadm.NewClient(own)
	created, err := admin.CreateTopics(t.Context(), 3, 1, map[string]*string{"cleanup.policy": kmsg.StringPtr("compact")}, txnlog.Topic, "__consumer_offsets", "orders")
	if err == nil {
		err = created.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	decide := func() error {
		if beginErr := own.BeginTransaction(); beginErr != nil {
			return beginErr
		}
		written := own.ProduceSync(t.Context(), &kgo.Record{Topic: txnlog.Topic, Key: []byte("k"), Value: []byte("v")}).FirstErr()
		return errors.Join(written, own.EndTransaction(t.Context(), kgo.TryCommit))
	}
	if err = decide(); err != nil {
		t.Fatal(err)
	}
	if created, err = kadm.NewClient(n.client(t)).CreateTopics(t.Context(), 1, 1, nil, "__transaction_state"); err != nil || !errors.Is(created.Error(), kerr.InvalidTopicException) {
		t.Errorf("creating an internal topic: %v, %v", err, created.Error())
	}
	all, err := admin.ListTopicsWithInternal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	look := func() string {
		described, lookErr := admin.DescribeTransactions(t.Context(), "__gtc-0")
		if lookErr != nil {
			t.Fatal(lookErr)
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%+v", described.Sorted()[0])
		for _, topic := range []string{txnlog.Topic, "__consumer_offsets"} {
			metadata := kmsg.NewPtrMetadataRequest() // kadm may answer from memory
			metadata.Topics = append(metadata.Topics, kmsg.MetadataRequestTopic{Topic: &topic})
			detail, errTopics := metadata.RequestWith(t.Context(), own)
			starts, errStarts := admin.ListStartOffsets(t.Context(), topic)
			ends, errEnds := admin.ListEndOffsets(t.Context(), topic)
			configs, errConfigs := admin.DescribeTopicConfigs(t.Context(), topic)
			if lookErr = errors.Join(errTopics, errStarts, errEnds, errConfigs); lookErr != nil {
				t.Fatal(lookErr)
			}
			fmt.Fprintf(&b, "\n%s %v %d", topic, detail.Topics[0].TopicID, len(detail.Topics[0].Partitions))
			for p := range int32(len(detail.Topics[0].Partitions)) {
				from, _ := starts.Lookup(topic, p)
				to, _ := ends.Lookup(topic, p)
				fmt.Fprintf(&b, " %d-%d", from.Offset, to.Offset)
			}
			for _, c := range configs[0].Configs {
				if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
					fmt.Fprintf(&b, " %s=%s", c.Key, c.MaybeValue())
				}
			}
		}
		return b.String()
	}
	evil, _ := n.initialise(t, "evil", false)
	before := look()
	for key, versions := range served(t, n.dial(t)) {
		described, describeErr := admin.DescribeTransactions(t.Context(), "__gtc-0")
		if describeErr != nil {
			t.Fatal(describeErr)
		}
		claim := described["__gtc-0"]
		for _, version := range versions {
			for _, topic := range []string{txnlog.Topic, "__consumer_offsets", "orders"} {
				for _, as := range []attacktest.Names{
					{TxnID: "__gtc-0", Producer: claim.ProducerID, Epoch: claim.ProducerEpoch},
					{TxnID: "__gtc-0", Producer: claim.ProducerID, Epoch: claim.ProducerEpoch, Yes: true},
					{TxnID: "evil", Producer: evil.pid, Epoch: evil.epoch, Yes: true},
					{TxnID: "evil", Producer: claim.ProducerID, Epoch: claim.ProducerEpoch},
					{Producer: claim.ProducerID, Epoch: claim.ProducerEpoch + 100},
				} {
					if key == int16(kmsg.TxnOffsetCommit) && as.TxnID == "evil" {
						continue // what it leaves in the offsets topic belongs there
					}
					if topic == "orders" {
						as.Limit = "1000000" // records must be able to reach it
					}
					as.Topic, as.TopicID, as.Group = topic, all[topic].ID, "__gtc-coordinators"
					for _, byName := range []bool{true, false} {
						req := attacktest.Filled(key, version, as)
						if d, ok := req.(*kmsg.DeleteTopicsRequest); ok && !byName && version >= 6 {
							d.Topics[0].Topic = nil
						} else if ok && version >= 6 {
							d.Topics[0].TopicID = [16]byte{}
						} else if !byName {
							continue
						}
						if d, ok := req.(*kmsg.DeleteTopicsRequest); ok && topic == "orders" && d != nil {
							continue // anybody may
						}
						r := n.dial(t)
						r.send(frameOf(req, 1))
						if _, _, err = r.receive(); err != nil && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
							t.Fatalf("%s version %d: %v", wire.NameForKey(key), version, err)
						}
						_ = r.Close()
					}
				}
			}
		}
		if after := look(); after != before {
			t.Fatalf("%s (key %d) changed\n%s\nto\n%s", wire.NameForKey(key), key, before, after)
		}
		if err = decide(); err != nil {
			t.Fatalf("after %s (key %d) the coordinator cannot write: %v", wire.NameForKey(key), key, err)
		}
		before = look()
	}
}

var refusals = map[kmsg.ACLResourceType]*kerr.Error{
	kmsg.ACLResourceTypeTopic:           kerr.TopicAuthorizationFailed,
	kmsg.ACLResourceTypeGroup:           kerr.GroupAuthorizationFailed,
	kmsg.ACLResourceTypeCluster:         kerr.ClusterAuthorizationFailed,
	kmsg.ACLResourceTypeTransactionalId: kerr.TransactionalIDAuthorizationFailed,
}

// codes are the error codes of a response, at every level.
func codes(v reflect.Value, to map[int16]bool) {
	switch v.Kind() { //nolint:exhaustive // the others hold no code
	case reflect.Pointer:
		if !v.IsNil() {
			codes(v.Elem(), to)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name == "ErrorCode" {
				to[int16(v.Field(i).Int())] = true
			} else if v.Type().Field(i).IsExported() {
				codes(v.Field(i), to)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			codes(v.Index(i), to)
		}
	}
}

// Who has no right gets Kafka's refusal from every request, in every version, or
// is shown nothing; and what is refused has no effect.
func TestARequestWithoutRightsIsRefused(t *testing.T) {
	n := startSecure(t, append(guarded, "unstable.api.versions.enable=true", "transaction.two.phase.commit.enable=true"))
	admin := kadm.NewClient(n.client(t, 0, asAdmin))
	const secret = "orders-of-somebody"
	if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, secret); err != nil {
		t.Fatal(err)
	}
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis, init.ProducerID, init.ProducerEpoch = kmsg.StringPtr(secret), 60_000, -1, -1
	given, err := init.RequestWith(t.Context(), n.client(t, 0, asAdmin))
	if err != nil || given.ErrorCode != 0 {
		t.Fatal(err, given)
	}
	if err = admin.CommitAllOffsets(t.Context(), secret, kadm.OffsetsFromRecords(kgo.Record{Topic: secret})); err != nil {
		t.Fatal(err)
	}
	topics, err := admin.ListTopics(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	login := func() *raw {
		r := dialRaw(t, n.addrs[0])
		handshake(t, r, "SCRAM-SHA-256")
		if resp := scramOver(t, r, "mallory", "m"); resp.ErrorCode != 0 {
			t.Fatal(kerr.ErrorForCode(resp.ErrorCode))
		}
		return r
	}
	for key, versions := range served(t, login()) {
		asks, _ := broker.AsksOf(key)
		for _, version := range versions {
			for _, yes := range []bool{false, true} {
				req := attacktest.Filled(key, version, attacktest.Names{
					Topic: secret, TopicID: topics[secret].ID, Group: secret, TxnID: secret,
					Producer: given.ProducerID, Epoch: given.ProducerEpoch, Yes: yes,
				})
				if d, ok := req.(*kmsg.DeleteTopicsRequest); ok && version >= 6 {
					d.Topics[0].Topic = nil // by name or by id
				}
				what := fmt.Sprintf("%s version %d (%v)", wire.NameForKey(key), version, yes)
				r := login()
				r.send(frameOf(req, 1))
				_, body, err := r.receive()
				_ = r.Close()
				if err != nil {
					if key != int16(kmsg.SASLAuthenticate) {
						t.Errorf("%s: %v", what, err)
					}
					continue
				}
				resp := req.ResponseKind()
				if resp.IsFlexible() && key != 18 {
					body = body[1:]
				}
				if err = resp.ReadFrom(body); err != nil {
					t.Errorf("%s: %v", what, err)
					continue
				}
				got := make(map[int16]bool)
				codes(reflect.ValueOf(resp), got)
				refused := slices.ContainsFunc(asks.On, func(on kmsg.ACLResourceType) bool { return got[refusals[on].Code] })
				switch {
				case asks.Free:
				case key == int16(kmsg.DescribeLogDirs) && version < 3: // they have no code
					if bytes.Contains(body, []byte(secret)) {
						t.Errorf("%s tells %+v", what, resp)
					}
				case asks.Hides && asked(req, secret):
					// It may repeat the name, and says that there is none.
				case asks.Hides && bytes.Contains(body, []byte(secret)):
					t.Errorf("%s shows what the client may not see: %+v", what, resp)
				case !asks.Hides && (!refused || got[0] && !onlyTop(resp)):
					t.Errorf("%s: codes %v, want one of %v", what, got, asks.On)
				}
			}
		}
	}
}

// asked says that a request names something itself.
func asked(req kmsg.Request, name string) bool {
	return bytes.Contains(req.AppendTo(nil), []byte(name))
}

// onlyTop says that the one code 0 of a response is the one at its top, which is
// about the whole.
func onlyTop(resp kmsg.Response) bool {
	f := reflect.ValueOf(resp).Elem().FieldByName("ErrorCode")
	if !f.IsValid() || f.Int() != 0 {
		return false
	}
	inner := make(map[int16]bool)
	v := reflect.ValueOf(resp).Elem()
	for i := range v.NumField() {
		if v.Type().Field(i).Name != "ErrorCode" && v.Type().Field(i).IsExported() {
			codes(v.Field(i), inner)
		}
	}
	return !inner[0]
}

// Before the login nothing is served but what leads to it.
func TestNoKeyIsServedBeforeTheLogin(t *testing.T) {
	n := startSecure(t, append(guarded, "unstable.api.versions.enable=true"))
	for key, versions := range served(t, dialRaw(t, n.addrs[0])) {
		if key == int16(kmsg.ApiVersions) || key == int16(kmsg.SASLHandshake) {
			continue
		}
		for _, version := range versions {
			r := dialRaw(t, n.addrs[0])
			r.send(frameOf(attacktest.Filled(key, version, attacktest.Names{Topic: "t", Group: "g", TxnID: "x"}), 1))
			if !r.ended() {
				t.Errorf("%s version %d is answered", wire.NameForKey(key), version)
			}
			_ = r.Close()
		}
	}
}

// README names every request that is looked into, and no other.
func TestTheReadmeNamesWhatIsGuarded(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(readme), "Looked into are: ")
	list, _, _ = strings.Cut(list, ".")
	if !found {
		t.Fatal("README has no such list")
	}
	var want []string
	for key := range int16(400) {
		if broker.Guarded(key) {
			want = append(want, wire.NameForKey(key))
		}
	}
	got := strings.Split(list, ", ")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("README has\n%s\nand the policies have\n%s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
}
