package broker_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker/internal/batchtest"
)

func TestSettingsThatTheNodeCouldNotLiveWithAreRefused(t *testing.T) {
	dir := t.TempDir()
	n := startConfigured(t, onDisk(t, dir))
	cl := n.client(t)
	adm := kadm.NewClient(cl)
	createTopic(t, cl, "t")
	for name, values := range map[string][]string{
		"log.cleaner.backoff.ms":              {"0", "-1", "x", "2147483648", "", "1", "9223372036854775807"},
		"offsets.retention.check.interval.ms": {"0", "1", "4294967296"},
		"message.max.bytes":                   {"1", "0", "-1", "x"},
		"log.segment.bytes":                   {"1", "104857600"},
		"state.log.compact.bytes":             {"0", "10485760"},
		"producer.id.expiration.ms":           {"1"},
		"transactional.id.expiration.ms":      {"1"},
		"group.max.size":                      {"0"},
		"no.such.setting":                     {"1"},
	} {
		for _, value := range values {
			change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: kmsg.StringPtr(value)}}
			for _, alter := range []func() (kadm.AlterConfigsResponses, error){
				func() (kadm.AlterConfigsResponses, error) { return adm.AlterBrokerConfigs(t.Context(), change, 0) },
				func() (kadm.AlterConfigsResponses, error) { return adm.AlterBrokerConfigs(t.Context(), change) },
				func() (kadm.AlterConfigsResponses, error) { return adm.AlterBrokerConfigsState(t.Context(), change, 0) },
			} {
				rs, err := alter()
				if err != nil || len(rs) != 1 || !errors.Is(rs[0].Err, kerr.InvalidRequest) || rs[0].ErrMessage == "" {
					t.Errorf("%s=%q: %+v %v", name, value, rs, err)
				}
			}
		}
	}
	for name, value := range map[string]string{"segment.bytes": "1", "max.message.bytes": "-1", "cleanup.policy": "none", "kfake.is_internal": "true", "no.such.setting": "1"} {
		change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}
		for _, alter := range []func() (kadm.AlterConfigsResponses, error){
			func() (kadm.AlterConfigsResponses, error) { return adm.AlterTopicConfigs(t.Context(), change, "t") },
			func() (kadm.AlterConfigsResponses, error) {
				return adm.AlterTopicConfigsState(t.Context(), change, "t")
			},
		} {
			if rs, err := alter(); err != nil || len(rs) != 1 || !errors.Is(rs[0].Err, kerr.InvalidConfig) {
				t.Errorf("%s=%q of a topic: %+v %v", name, value, rs, err)
			}
		}
		if _, err := adm.CreateTopic(t.Context(), 1, 1, map[string]*string{name: &value}, "new"); !errors.Is(err, kerr.InvalidConfig) {
			t.Errorf("%s=%q of a new topic: %v", name, value, err)
		}
	}
	// kfake's ticker runs when a topic is compacted.
	compact := map[string]*string{"cleanup.policy": kmsg.StringPtr("compact"), "retention.ms": kmsg.StringPtr("1")}
	if _, err := adm.CreateTopic(t.Context(), 1, 1, compact, "c"); err != nil {
		t.Fatal(err)
	}
	n.stop()
	startConfigured(t, onDisk(t, dir)).serves(t)
}

// A change that replaces all settings of a broker took the node's own with it:
// kfake then compacts within an hour.
func TestTheNodesOwnSettingsStay(t *testing.T) {
	dir := t.TempDir()
	n := startConfigured(t, onDisk(t, dir))
	own := map[string]string{
		"log.cleaner.backoff.ms": "9223372036854", "producer.id.expiration.ms": "2147483647",
		"log.segment.bytes": "104857600", "state.log.compact.bytes": "9223372036854775807", "group.max.size": "1000", "transaction.max.timeout.ms": "900000",
	}
	stay := func(when string) {
		t.Helper()
		shown := describeBroker(t, n.client(t), "0")
		for name, want := range own {
			if c := shown[name]; c.Value == nil || *c.Value != want || !c.ReadOnly {
				t.Errorf("%s: %s is %+v, want %s", when, name, c, want)
			}
		}
		for name := range describeBroker(t, n.client(t), "") {
			if _, is := own[name]; is {
				t.Errorf("%s: the cluster's defaults show %s", when, name)
			}
		}
	}
	stay("at first")
	adm := kadm.NewClient(n.client(t))
	allowed := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "log.retention.ms", Value: kmsg.StringPtr("5")}}
	if rs, err := adm.AlterBrokerConfigsState(t.Context(), allowed, 0); err != nil || rs[0].Err != nil {
		t.Fatal(rs, err)
	}
	stay("after a change of all")
	for name := range own {
		rs, err := adm.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.DeleteConfig, Name: name}}, 0)
		if err != nil || !errors.Is(rs[0].Err, kerr.InvalidRequest) {
			t.Errorf("taking %s away: %+v %v", name, rs, err)
		}
	}
	stay("after they were taken away")
	n.stop()
	n = startConfigured(t, onDisk(t, dir))
	stay("after a restart")
	if c := describeBroker(t, n.client(t), "0")["log.retention.ms"]; c.Value == nil || *c.Value != "5" {
		t.Errorf("log.retention.ms after a restart: %+v", c)
	}
}

// An older node took what keeps this one from starting, or from writing.
func TestSettingsThatAreNotAllowedAnyMoreAreLeftOut(t *testing.T) {
	dir := t.TempDir()
	n := startConfigured(t, onDisk(t, dir))
	createTopic(t, n.client(t), "t")
	n.stop()
	const kept = `{"version":1,"configs":{"message.max.bytes":"1","offsets.retention.check.interval.ms":"0","log.cleaner.backoff.ms":"1","log.retention.ms":"7"}}`
	if err := os.WriteFile(filepath.Join(dir, "broker_configs.json"), []byte(kept), 0o600); err != nil {
		t.Fatal(err)
	}
	n = startConfigured(t, onDisk(t, dir))
	if got := n.dial(t).put("t", batchtest.Plain(1).Raw()); got.ErrorCode != 0 {
		t.Errorf("a batch: %v", kerr.ErrorForCode(got.ErrorCode))
	}
	shown := describeBroker(t, n.client(t), "0", "message.max.bytes", "log.retention.ms")
	if big, kept := shown["message.max.bytes"], shown["log.retention.ms"]; *big.Value != "1048588" || *kept.Value != "7" {
		t.Errorf("%+v", shown)
	}
}
