package topiclog

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// testContradictions wants a cluster of one broker.
func testContradictions(t *testing.T, newTopic func(t *testing.T) *store) {
	t.Helper()
	for name, c := range map[string]struct {
		configure     func(*Options)
		settings      map[string]string
		setting, have string
	}{
		"partitions":           {func(o *Options) { o.Partitions = 5 }, nil, "partitions", "3"},
		"replication factor":   {func(o *Options) { o.ReplicationFactor = 3 }, nil, "replication factor", "1"},
		"cleanup.policy":       {nil, map[string]string{"cleanup.policy": "delete"}, "cleanup.policy", "delete"},
		"cleanup.policy both":  {nil, map[string]string{"cleanup.policy": "compact,delete"}, "cleanup.policy", "compact,delete"},
		"max.message.bytes":    {nil, map[string]string{"max.message.bytes": "1000"}, "max.message.bytes", "1000"},
		"CreateTime":           {nil, map[string]string{"message.timestamp.type": "CreateTime"}, "message.timestamp.type", "CreateTime"},
		"more than configured": {nil, map[string]string{"min.insync.replicas": "2"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTopic(t)
			s.open(t).Close()
			alter(t, s, c.settings)
			o := s.options()
			if c.configure != nil {
				c.configure(&o)
			}
			l, err := Open(t.Context(), o)
			if err == nil {
				l.Close()
			}
			if c.setting == "" {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			setting, ok := errors.AsType[*SettingError](err)
			if !ok || !strings.HasPrefix(setting.Setting, c.setting) || setting.Have != c.have {
				t.Fatalf("got %v, want %s=%s refused", err, c.setting, c.have)
			}
		})
	}
}

func alter(t *testing.T, s *store, settings map[string]string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	for k, v := range settings {
		resp, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: k, Value: &v}}, s.topic)
		if err != nil || resp[0].Err != nil {
			t.Fatalf("setting %s: %v, %+v", k, err, resp)
		}
		// A broker learns of it from the controller a moment later.
		eventually(t, k+" to be set", func() bool {
			all, err := admin.DescribeTopicConfigs(t.Context(), s.topic)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range all[0].Configs {
				if c.Key == k {
					return c.MaybeValue() == v
				}
			}
			return false
		})
	}
}

func TestATopicThatContradictsTheConfigurationIsRefused(t *testing.T) {
	testContradictions(t, func(t *testing.T) *store {
		s, _ := kfakeStore(t)
		return s
	})
}

func TestTooFewInsyncReplicasAreRefused(t *testing.T) {
	s, _ := kfakeStore(t, kfake.NumBrokers(3))
	s.configure = func(o *Options) { o.ReplicationFactor = 3 }
	s.open(t).Close()
	o := s.options()
	o.MinInsyncReplicas = 2
	_, err := Open(t.Context(), o)
	if setting, ok := errors.AsType[*SettingError](err); !ok || setting.Setting != "min.insync.replicas" || setting.Have != "1" {
		t.Fatalf("got %v, want min.insync.replicas=1 refused", err)
	}
}

func TestAMissingTopicIsCreatedOnlyIfAllowed(t *testing.T) {
	s, _ := kfakeStore(t)
	o := s.options()
	o.Create = false
	if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Fatalf("got %v, want the missing topic named", err)
	}
	o.Create, o.ReplicationFactor, o.MinInsyncReplicas = true, 3, 2
	if _, err := Open(t.Context(), o); !errors.Is(err, kerr.InvalidReplicationFactor) {
		t.Fatalf("got %v, want INVALID_REPLICATION_FACTOR on one broker", err)
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no clock":                      func(o *Options) { o.Clock = nil },
		"negative partitions":           func(o *Options) { o.Partitions = -1 },
		"more in sync than there are":   func(o *Options) { o.MinInsyncReplicas = 2 },
		"negative timeout":              func(o *Options) { o.AppendTimeout = -1 },
		"no brokers that are reachable": func(o *Options) { o.ClientOpts = []kgo.Opt{kgo.SeedBrokers()} },
	} {
		t.Run(name, func(t *testing.T) {
			o := newStore([]string{"127.0.0.1:1"}, "t").options()
			change(&o)
			if _, err := Open(t.Context(), o); err == nil {
				t.Fatal("accepted")
			}
		})
	}
}
