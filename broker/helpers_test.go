package broker_test

import (
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

func testLog(t *testing.T) zerolog.Logger {
	t.Helper()
	return zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)
}

// defaultRequest is a request as its constructor makes it.
func defaultRequest(key, version int16) kmsg.Request {
	if req, ours := wire.RequestForKey(key, version); ours {
		return req
	}
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	return req
}
