package broker

import (
	"testing"
	"time"
)

// kfake hands the pinned period to a ticker, in milliseconds.
func TestKfakeNeverCompacts(t *testing.T) {
	if d := time.Duration(never) * time.Millisecond; d < 200*365*24*time.Hour {
		t.Errorf("it does after %v", d)
	}
	if _, may := brokerSettings["log.cleaner.backoff.ms"]; may {
		t.Error("a client may say when")
	}
}

func TestEachSettingHasItsRange(t *testing.T) {
	var all []string
	for _, rules := range []map[string]rule{brokerSettings, topicSettings, groupSettings} {
		for name, r := range rules {
			all = append(all, name)
			if r.must != "" && refuseSetting(rules, name, new("no such value, \n")) == "" {
				t.Errorf("%s takes anything", name)
			}
			if refuseSetting(rules, name, nil) != "" {
				t.Errorf("%s cannot be taken away", name)
			}
		}
		if refuseSetting(rules, "no.such.setting", nil) == "" || refuseSetting(rules, "kfake.is_internal", new("true")) == "" {
			t.Errorf("takes settings that are not there, beside %q", all)
		}
	}
	for _, c := range []struct {
		rules      map[string]rule
		name       string
		good, evil []string
	}{
		{brokerSettings, "message.max.bytes", []string{"1048588", "2147483647"}, []string{"1", "0", "-1", "1048587", "2147483648", "9223372036854775808", "1e9", " 2000000", ""}},
		{brokerSettings, "log.retention.ms", []string{"-1", "0", "9223372036854775807"}, []string{"-2", "9223372036854775808", "x", ""}},
		{brokerSettings, "min.insync.replicas", []string{"1"}, []string{"0", "-1", "2147483648"}},
		{topicSettings, "segment.bytes", []string{"1048576"}, []string{"1048575", "300", "0", "-1", "2147483648"}},
		{topicSettings, "max.message.bytes", []string{"0", "1000"}, []string{"-1", "2147483648", ""}},
		{topicSettings, "cleanup.policy", []string{"", "compact", "delete", "compact,delete", "delete, compact"}, []string{"compact,", "none", "compactor"}},
		{topicSettings, "compression.type", []string{"producer", "zstd"}, []string{"", "none", "ZSTD"}},
		{topicSettings, "message.timestamp.type", []string{"CreateTime", "LogAppendTime"}, []string{"", "createtime"}},
		{topicSettings, "min.cleanable.dirty.ratio", []string{"0", "0.5", "1"}, []string{"-0.1", "1.1", "NaN", "Inf", ""}},
		{topicSettings, "preallocate", []string{"true", "false"}, []string{"TRUE", "1", ""}},
		{groupSettings, "share.isolation.level", []string{"read_committed"}, []string{"", "2"}},
		{groupSettings, "consumer.session.timeout.ms", []string{"1", "45000"}, []string{"0", "-1", "2147483648"}},
	} {
		for _, value := range c.good {
			if why := refuseSetting(c.rules, c.name, &value); why != "" {
				t.Errorf("%q: %s", value, why)
			}
		}
		for _, value := range c.evil {
			if refuseSetting(c.rules, c.name, &value) == "" {
				t.Errorf("%s=%q is taken", c.name, value)
			}
		}
	}
}
