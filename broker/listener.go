package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// Listener is one of a front's addresses: what its clients are told, and what
// they have to show. The zero value is that of Options, in plain text.
type Listener struct {
	// Advertised is what clients of this listener are told of the node; the
	// zero value means Options.Node.
	Advertised Node
	TLS        *tls.Config        // nil: plain text
	SASL       *config.ServerSASL // nil: nobody authenticates by SASL
}

// NewListener makes a listener as it is configured, and reads its keys.
func NewListener(l config.Listener, advertised Node) (Listener, error) {
	out := Listener{Advertised: advertised, SASL: l.SASL}
	if l.TLS == nil {
		return out, nil
	}
	var err error
	if out.TLS, err = serverTLS(*l.TLS); err != nil {
		return out, fmt.Errorf("the listener %s: %w", l.Name, err)
	}
	return out, nil
}

// handshake ends before anything is read of a TLS connection. A client that
// shows a certificate is who the certificate says; one that does not is
// nobody, as in Kafka.
func (c *conn) handshake() error {
	t, ok := c.net.(*tls.Conn)
	if !ok {
		return nil
	}
	if err := c.allow(stallTimeout); err != nil {
		return err
	}
	if err := c.net.SetWriteDeadline(c.f.opts.Now().Add(stallTimeout)); err != nil {
		return err
	}
	if err := t.HandshakeContext(c.ctx); err != nil {
		return err
	}
	if certs := t.ConnectionState().PeerCertificates; len(certs) > 0 {
		principal, err := certificatePrincipal(certs[0].RawSubject)
		if err != nil {
			return err
		}
		c.who.principal = principal
	}
	return nil
}

// readdress puts the address of the client's listener into answers that name
// this node; kfake knows one address only, that of the first listener.
func (f *Front) readdress(l *Listener, p plan) plan {
	if l.Advertised == (Node{}) || l.Advertised == f.opts.Node {
		return p
	}
	if handle := p.handle; handle != nil {
		p.handle = func(ctx context.Context, who caller) kmsg.Response {
			resp := handle(ctx, who)
			l.putAddress(resp)
			return resp
		}
		return p
	}
	edit := p.edit
	p.edit = func(resp kmsg.Response) kmsg.Response {
		if edit != nil {
			resp = edit(resp)
		}
		l.putAddress(resp)
		return resp
	}
	return p
}

// named are the requests whose answers name nodes by their address.
func namesNodes(req *request) bool {
	switch req.body.(type) {
	case *kmsg.MetadataRequest, *kmsg.FindCoordinatorRequest, *wire.FindCoordinatorRequest, *kmsg.DescribeClusterRequest:
		return true
	}
	return false
}

func (l *Listener) putAddress(resp kmsg.Response) {
	a := l.Advertised
	put := func(id int32, host *string, port *int32) {
		if id == a.ID {
			*host, *port = a.Host, a.Port
		}
	}
	switch resp := resp.(type) {
	case *kmsg.MetadataResponse:
		for i := range resp.Brokers {
			put(resp.Brokers[i].NodeID, &resp.Brokers[i].Host, &resp.Brokers[i].Port)
		}
	case *kmsg.DescribeClusterResponse:
		for i := range resp.Brokers {
			put(resp.Brokers[i].NodeID, &resp.Brokers[i].Host, &resp.Brokers[i].Port)
		}
	case *kmsg.FindCoordinatorResponse:
		if resp.ErrorCode == 0 && resp.Version < 4 {
			put(resp.NodeID, &resp.Host, &resp.Port)
		}
		for i := range resp.Coordinators {
			put(resp.Coordinators[i].NodeID, &resp.Coordinators[i].Host, &resp.Coordinators[i].Port)
		}
	case *wire.FindCoordinatorResponse:
		for i := range resp.Coordinators {
			put(resp.Coordinators[i].NodeID, &resp.Coordinators[i].Host, &resp.Coordinators[i].Port)
		}
	}
}

// HomeDialer connects to the home cluster, for the authentication of clients
// that this node leaves to it.
func HomeDialer(home config.Cluster) (func(context.Context) (net.Conn, error), error) {
	access, err := home.Security.Open()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (net.Conn, error) {
		var errs []error
		for _, server := range home.BootstrapServers {
			c, err := access.DialContext(ctx, "tcp", server)
			if err == nil {
				return c, nil
			}
			errs = append(errs, err)
		}
		return nil, errors.Join(errs...)
	}, nil
}
