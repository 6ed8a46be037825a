package broker_test

import (
	"testing"

	"github.com/rs/zerolog"

	"github.com/kafka-gtc/kafka-gtc/broker/internal/attacktest"
)

func testLog(t *testing.T) zerolog.Logger {
	t.Helper()
	return zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)
}

var (
	defaultRequest = attacktest.Default
	batch          = attacktest.Batch
)
