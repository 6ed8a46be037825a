package conformance

import (
	"context"
	"fmt"
	"net"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/readback"
	"github.com/kafka-gtc/kafka-gtc/gtc/client/properties"
)

// Security is how clients connect: what a client.properties file says. The nil
// Security is plain text.
type Security struct {
	properties.Access

	user, password string
}

// ReadSecurity reads the security keys of a client's properties file as Kafka's
// tools do with --command-config.
func ReadSecurity(file string) (*Security, error) {
	configured, err := properties.LoadSecurity(file)
	if err != nil {
		return nil, fmt.Errorf("conformance: client configuration: %w", err)
	}
	s := &Security{user: configured.Username, password: string(configured.Password)}
	if s.Access, err = configured.Open(); err != nil {
		return nil, fmt.Errorf("conformance: client configuration: %w", err)
	}
	return s, nil
}

// opts are for a kgo client.
func (s *Security) opts() []kgo.Opt {
	if s == nil {
		return nil
	}
	return s.ClientOpts()
}

// secure says that what is said cannot be listened in to.
func (s *Security) secure() bool { return s != nil && s.TLS != nil }

// reader is the independent reader of a cluster.
func (s *Security) reader(addr string) *readback.Reader {
	t := &kafka.Transport{}
	if s != nil {
		t.TLS = s.TLS
		if s.user != "" {
			t.SASL = plain.Mechanism{Username: s.user, Password: s.password}
		}
	}
	return readback.NewReaderWith(addr, t)
}

func (s *Security) dial(ctx context.Context, addr string) (net.Conn, error) {
	if s == nil {
		s = &Security{}
	}
	return s.DialContext(ctx, "tcp", addr)
}
