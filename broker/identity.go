package broker

import (
	"bufio"
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker/config"
)

// accessControl turns kfake's authorizer on when the node has one.
//
// kfake knows a client by its login alone, and it has no login for one that
// showed a certificate, nor several listeners. So clients authenticate to the
// front, and the front tells kfake who each is: it logs in to PLAIN by that
// name with the empty password, which kfake takes for any name that it has no
// password for, and it has none for any. Nobody but this process can connect
// to kfake, and splitPlain keeps clients from doing the same. Should a later
// kfake refuse this, no connection comes about at all.
func (e *Embedded) accessControl(cfg *config.Config) []kfake.Opt {
	if cfg.Authorizer == nil {
		return nil
	}
	// A name that nobody can guess: it may do everything.
	var random [16]byte
	rand.Read(random[:]) //nolint:errcheck // never fails (crypto/rand)
	e.superUser = "node-" + hex.EncodeToString(random[:])
	opts := []kfake.Opt{kfake.EnableACLs(), kfake.Superuser(mechanismPlain, e.superUser, "")}
	for _, name := range cfg.Authorizer.SuperUserNames {
		opts = append(opts, kfake.Superuser(mechanismPlain, name, ""))
	}
	return opts
}

// nameForEmbedded is what kfake shall know the client by.
func (c *conn) nameForEmbedded() string {
	if c.trusted {
		return c.f.opts.Embedded.superUser
	}
	return strings.TrimPrefix(c.who.principal, userType)
}

// dialAs connects to kfake under a name; without access control kfake need not
// know it.
func (e *Embedded) dialAs(ctx context.Context, from net.Addr, name string) (net.Conn, error) {
	c, err := e.dial(ctx, from)
	if err != nil || e.superUser == "" {
		return c, err
	}
	if err = introduce(ctx, c, name); err != nil {
		return nil, errors.Join(fmt.Errorf("the embedded broker does not take %q: %w", name, err), c.Close())
	}
	return c, nil
}

func introduce(ctx context.Context, c net.Conn, name string) error {
	if name == "" || strings.ContainsRune(name, 0) {
		return errors.New("not a name")
	}
	r := &relay{Conn: c, in: bufio.NewReader(c)}
	handshake := kmsg.NewPtrSASLHandshakeRequest()
	handshake.Version, handshake.Mechanism = 1, mechanismPlain
	shaken := handshake.ResponseKind().(*kmsg.SASLHandshakeResponse)
	if err := r.ask(ctx, handshake, shaken); err != nil {
		return err
	}
	login := kmsg.NewPtrSASLAuthenticateRequest()
	login.SASLAuthBytes = []byte("\x00" + name + "\x00")
	done := login.ResponseKind().(*kmsg.SASLAuthenticateResponse)
	if err := r.ask(ctx, login, done); err != nil {
		return err
	}
	return errors.Join(kerr.ErrorForCode(shaken.ErrorCode), kerr.ErrorForCode(done.ErrorCode))
}

// scramIterations is the one number that kfake tells clients, whatever a
// credential was made with; Kafka's default.
const scramIterations = 4096

var scramMechanisms = []struct {
	name   string
	number int8 // in the protocol
	hash   func() hash.Hash
}{
	{"SCRAM-SHA-256", 1, sha256.New},
	{"SCRAM-SHA-512", 2, sha512.New},
}

// AddScramUsers makes credentials, but leaves those alone that are there: their
// passwords may have been changed since.
func (e *Embedded) AddScramUsers(ctx context.Context, users []config.ScramUser) error {
	for _, u := range users {
		for _, m := range scramMechanisms {
			if m.name != u.Mechanism {
				continue
			}
			there, err := e.hasScram(ctx, u.Name, m.number)
			if err == nil && !there {
				err = e.addScram(ctx, u, m.number, m.hash)
			}
			if err != nil {
				return fmt.Errorf("sasl.scram.credentials: the user %q: %w", u.Name, err)
			}
		}
	}
	return nil
}

func (e *Embedded) hasScram(ctx context.Context, name string, mechanism int8) (bool, error) {
	req := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	user := kmsg.NewDescribeUserSCRAMCredentialsRequestUser()
	user.Name = name
	req.Users = append(req.Users, user)
	answer, err := e.ask(ctx, req)
	if err != nil {
		return false, err
	}
	resp := answer.(*kmsg.DescribeUserSCRAMCredentialsResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return false, err
	}
	for _, r := range resp.Results {
		for _, info := range r.CredentialInfos {
			if info.Mechanism == mechanism {
				return true, nil
			}
		}
	}
	return false, nil
}

func (e *Embedded) addScram(ctx context.Context, u config.ScramUser, mechanism int8, h func() hash.Hash) error {
	var salt [32]byte
	rand.Read(salt[:]) //nolint:errcheck // never fails (crypto/rand)
	salted, err := pbkdf2.Key(h, string(u.Password), salt[:], scramIterations, h().Size())
	if err != nil {
		return err
	}
	req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	up := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
	up.Name, up.Mechanism, up.Iterations, up.Salt, up.SaltedPassword = u.Name, mechanism, scramIterations, salt[:], salted
	req.Upsertions = append(req.Upsertions, up)
	answer, err := e.ask(ctx, req)
	if err != nil {
		return err
	}
	for _, r := range answer.(*kmsg.AlterUserSCRAMCredentialsResponse).Results {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return err
		}
	}
	return nil
}
