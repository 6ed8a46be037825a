package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// asker sends the coordinator's RPCs as they are, without a library between.
type asker struct {
	t  *testing.T
	cl *kgo.Client
}

func newAsker(t *testing.T, rig *coordinatorRig) *asker {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(rig.addr), kgo.MaxVersions(wire.Versions()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &asker{t: t, cl: cl}
}

func (a *asker) ask(req kmsg.Request) (kmsg.Response, error) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	return a.cl.SeedBrokers()[0].Request(ctx, req)
}

// init asks until the partition is loaded.
func (a *asker) init(id string, instance byte, clusterIDs ...string) *wire.InitGlobalTxnResponse {
	a.t.Helper()
	req := wire.NewPtrInitGlobalTxnRequest()
	req.GlobalTransactionalID, req.TimeoutMillis, req.ClusterIDs, req.InstanceID = id, 60_000, clusterIDs, [16]byte{instance}
	for {
		resp, err := a.ask(req)
		if err != nil {
			a.t.Fatal(err)
		}
		r := resp.(*wire.InitGlobalTxnResponse)
		if r.ErrorCode != kerr.CoordinatorLoadInProgress.Code {
			return r
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (a *asker) end(id string, epoch int32, sequence int64, ps ...wire.EndGlobalTxnRequestParticipant) *wire.EndGlobalTxnResponse {
	a.t.Helper()
	req := wire.NewPtrEndGlobalTxnRequest()
	req.GlobalTransactionalID, req.GlobalEpoch, req.Sequence = id, epoch, sequence
	req.Committed, req.TimeoutMillis, req.Participants = true, 10_000, ps
	resp, err := a.ask(req)
	if err != nil {
		a.t.Fatal(err)
	}
	return resp.(*wire.EndGlobalTxnResponse)
}

// producer opens a transaction of the id on a cluster and returns how it is
// named in EndGlobalTxn.
func (a *asker) producer(c participantCluster, id, topic, value string) wire.EndGlobalTxnRequestParticipant {
	a.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addr), kgo.TransactionalID(id),
		kgo.TransactionTimeout(time.Duration(1<<31-1)*time.Millisecond))
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(cl.Close)
	if err = cl.BeginTransaction(); err != nil {
		a.t.Fatal(err)
	}
	if err = cl.ProduceSync(a.t.Context(), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		a.t.Fatal(err)
	}
	pid, epoch, err := cl.ProducerID(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	p := wire.NewEndGlobalTxnRequestParticipant()
	p.ClusterID, p.ProducerID, p.ProducerEpoch = c.id, pid, epoch
	return p
}

func wantError(t *testing.T, what string, code int16, message *string, want error, names ...string) {
	t.Helper()
	if err := wire.ErrorForCode(code); !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
	for _, name := range names {
		if message == nil || !strings.Contains(*message, name) {
			t.Errorf("%s: the message does not name %q: %v", what, name, message)
		}
	}
}

func nothingOpen(t *testing.T, id string, clusters map[string]participantCluster) {
	t.Helper()
	for name, c := range clusters {
		if open := openTransactions(t, c, id); len(open) > 0 {
			t.Errorf("%s has a transaction of %s open", name, id)
		}
	}
}

func TestAClusterThatIsNotConfiguredIsNamed(t *testing.T) {
	clusters := twoEmbedded(t)
	a := newAsker(t, newCoordinator(t, clusters))
	r := a.init("id", 1, clusters["us"].id, "elsewhere")
	wantError(t, "init", r.ErrorCode, r.ErrorMessage, wire.UnknownParticipant, "elsewhere")
	if len(r.ClusterErrors) != 1 || r.ClusterErrors[0].ClusterID != "elsewhere" {
		t.Errorf("cluster errors %+v", r.ClusterErrors)
	}
	nothingOpen(t, "id", clusters)
}

func TestTheLibraryNamesAClusterThatWasNotGiven(t *testing.T) {
	clusters := twoEmbedded(t)
	rig := newCoordinator(t, clusters)
	cl := openClient(t, rig, "id", clusters)
	txn, err := cl.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = txn.ProduceSync(t.Context(), "ap", &kgo.Record{Topic: "t"}).FirstErr()
	if unknown := new(client.UnknownClusterError); !errors.As(err, &unknown) || unknown.Cluster != "ap" {
		t.Errorf("%v, want an UnknownClusterError of ap", err)
	}
	if _, err := txn.Abort(t.Context()); err != nil {
		t.Error(err)
	}
	nothingOpen(t, "id", clusters)
}

func TestAnotherClusterThanExpectedIsRefused(t *testing.T) {
	clusters := twoEmbedded(t)
	a := newAsker(t, newCoordinator(t, clusters, "gtc.cluster.eu.cluster.id=moved-away"))
	r := a.init("id", 1, clusters["us"].id, "moved-away")
	wantError(t, "init", r.ErrorCode, r.ErrorMessage, wire.ParticipantClusterIDMismatch, "moved-away", clusters["eu"].id)
	nothingOpen(t, "id", clusters)
}

func TestAClusterThatHasNotOptedInIsToldTheSetting(t *testing.T) {
	clusters := map[string]participantCluster{
		"us": embeddedCluster(t, optedIn, "cluster.id=cluster-us"),
		"eu": embeddedCluster(t, "cluster.id=cluster-eu"),
	}
	rig := newCoordinator(t, clusters)
	a := newAsker(t, rig)
	r := a.init("id", 1, clusters["us"].id, clusters["eu"].id)
	wantError(t, "init", r.ErrorCode, r.ErrorMessage, wire.ParticipantNotEnabled,
		"cluster-eu", "transaction.max.timeout.ms=2147483647", "transaction.two.phase.commit.enable=true")
	nothingOpen(t, "id", clusters)
}

// The refusals of EndGlobalTxn, each beside a transaction that is then
// committed: none of them touched it.
func TestRefusedEndsChangeNothing(t *testing.T) {
	clusters := twoEmbedded(t)
	a := newAsker(t, newCoordinator(t, clusters))
	topic := newTopic(t, clusters)
	us, eu := clusters["us"], clusters["eu"]
	first := a.init("id", 1, us.id, eu.id)
	if first.ErrorCode != 0 {
		t.Fatalf("init: %v", wire.ErrorForCode(first.ErrorCode))
	}
	second := a.init("id", 2, us.id, eu.id)
	if second.GlobalEpoch != first.GlobalEpoch+1 {
		t.Fatalf("epochs %d and %d", first.GlobalEpoch, second.GlobalEpoch)
	}
	usP, euP := a.producer(us, "id", topic, "x"), a.producer(eu, "id", topic, "x")

	stale := a.end("id", first.GlobalEpoch, second.Sequence, usP, euP)
	wantError(t, "stale global epoch", stale.ErrorCode, stale.ErrorMessage, kerr.ProducerFenced)
	stranger := euP
	stranger.ClusterID = "elsewhere"
	outside := a.end("id", second.GlobalEpoch, second.Sequence, usP, stranger)
	wantError(t, "cluster outside the session", outside.ErrorCode, outside.ErrorMessage, wire.UnknownParticipant, "elsewhere")
	none := a.end("id", second.GlobalEpoch, second.Sequence)
	wantError(t, "no participant", none.ErrorCode, none.ErrorMessage, kerr.InvalidRequest)
	unknown := a.end("nobody", 1, 1, usP, euP)
	wantError(t, "unknown id", unknown.ErrorCode, unknown.ErrorMessage, kerr.TransactionalIDNotFound)

	done := a.end("id", second.GlobalEpoch, second.Sequence, usP, euP)
	if done.ErrorCode != 0 || done.Outcome != wire.OutcomeCommitted {
		t.Fatalf("commit: %v, outcome %d", wire.ErrorForCode(done.ErrorCode), done.Outcome)
	}
	// The same sequence twice: the same answer, also for an abort.
	again := a.end("id", second.GlobalEpoch, second.Sequence, euP, usP)
	if again.ErrorCode != 0 || again.Outcome != done.Outcome || len(again.Participants) != 2 {
		t.Errorf("the repeat is answered %v, outcome %d", wire.ErrorForCode(again.ErrorCode), again.Outcome)
	}
	// Another list under the same sequence: the first stands.
	other := a.end("id", second.GlobalEpoch, second.Sequence, usP)
	wantError(t, "another list", other.ErrorCode, other.ErrorMessage, kerr.InvalidRequest)
	old := a.end("id", second.GlobalEpoch, second.Sequence-1, usP, euP)
	wantError(t, "an older sequence", old.ErrorCode, old.ErrorMessage, wire.GlobalTransactionTooOld)
	for name, c := range clusters {
		if got := visibleOn(t, c, topic); len(got) != 1 || got[0] != "x" {
			t.Errorf("%s shows %v, want x once", name, got)
		}
	}
	nothingOpen(t, "id", clusters)
}

func TestAnUnknownVersionOfTheCoordinatorsRPCsIsRefused(t *testing.T) {
	rig := newCoordinator(t, twoEmbedded(t))
	cl, err := kgo.NewClient(kgo.SeedBrokers(rig.addr), kgo.MaxVersions(wire.Versions()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	// kgo refuses to send what ApiVersions does not offer: version 0 alone.
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "test", "1"
	resp, err := cl.SeedBrokers()[0].Request(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	offered := 0
	for _, k := range resp.(*kmsg.ApiVersionsResponse).ApiKeys {
		if k.ApiKey >= wire.KeyInitGlobalTxn {
			offered++
			if k.MinVersion != 0 || k.MaxVersion != 0 {
				t.Errorf("key %d is offered in versions %d to %d", k.ApiKey, k.MinVersion, k.MaxVersion)
			}
		}
	}
	if offered != 5 {
		t.Errorf("%d of the coordinator's 5 RPCs are offered", offered)
	}
	// Sent all the same, it is not executed: the connection ends.
	if answer := rawRequest(t, rig.addr, wire.KeyInitGlobalTxn, 9); len(answer) != 0 {
		t.Errorf("version 9 of InitGlobalTxn was answered with %d bytes", len(answer))
	}
}

func TestABrokenPropertiesFileIsRefusedLineByLine(t *testing.T) {
	const file = "process.roles=broker,gtc\ngtc.clusters=us\ngtc.cluster.us.bootstrap.server=127.0.0.1:1\nnum.partitions=many\n"
	_, err := config.Parse("server.properties", strings.NewReader(file), nil)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"server.properties:3", "gtc.cluster.us.bootstrap.servers", "server.properties:4", "num.partitions"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}
