package topiclog

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kafka-gtc/kafka-gtc/txnlog/internal/logtest"
)

func TestLogOnKfake(t *testing.T) {
	logtest.Run(t, func(t *testing.T) logtest.Target {
		s, _ := kfakeStore(t)
		return s.target()
	})
}

func TestLogOnThreeBrokersOfKfake(t *testing.T) {
	logtest.Run(t, func(t *testing.T) logtest.Target {
		s, _ := kfakeStore(t, kfake.NumBrokers(3))
		s.configure = func(o *Options) { o.ReplicationFactor, o.MinInsyncReplicas = 3, 2 }
		return s.target()
	})
}

func TestLogOnKfakeWithForcedWrites(t *testing.T) {
	logtest.Run(t, func(t *testing.T) logtest.Target {
		s, _ := kfakeStore(t, kfake.DataDir(t.TempDir()), kfake.SyncWrites())
		return s.target()
	})
}
