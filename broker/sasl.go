package broker

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc/client/properties"
)

const (
	// maxUnauthenticated bounds the frames of a client whose name is not
	// known yet; Kafka's default of sasl.server.max.receive.size.
	maxUnauthenticated = 512 << 10
	// refusedDelay slows guessing down; Kafka's default of
	// connection.failed.authentication.delay.ms.
	refusedDelay = 100 * time.Millisecond
	// relayTimeout bounds one exchange with whoever knows the passwords.
	relayTimeout = 10 * time.Second
)

type saslStage int

const (
	saslNone      saslStage = iota // the listener does not ask for it
	saslHandshake                  // nothing but ApiVersions and SaslHandshake is served
	saslAuthenticate
	saslDone
)

// login is how far the authentication of a connection has come.
type login struct {
	stage     saslStage
	mechanism string
	exchange  *relay    // with whoever knows the passwords; nil for PLAIN checked here
	name      string    // that the client claims
	expires   time.Time // when it has to authenticate again (KIP-368); zero: never
}

// open says that requests are served.
func (l *login) open() bool { return l.stage == saslNone || l.stage == saslDone }

func (l *login) end() {
	if l.exchange != nil {
		l.exchange.close()
		l.exchange = nil
	}
}

// premature says that a frame must not even be parsed yet: before a client has
// a name it reaches three small requests and no more.
func (c *conn) premature(frame []byte) bool {
	key := kmsg.Key(int16(frame[sizeBytes])<<8 | int16(frame[sizeBytes+1]))
	return !c.login.open() && key != kmsg.ApiVersions && key != kmsg.SASLHandshake && key != kmsg.SASLAuthenticate
}

// authenticate takes the requests of SASL, and refuses others that come before
// their time, as Kafka's SaslServerAuthenticator and KafkaApis do. A nil answer
// without an error is for others to give; with an error the connection ends
// after the answer. Only the reader of the connection calls it.
func (c *conn) authenticate(req *request) (kmsg.Response, error) {
	l := &c.login
	switch body := req.body.(type) {
	case *kmsg.SASLHandshakeRequest:
		switch {
		case l.stage == saslHandshake, l.stage == saslDone && !l.expires.IsZero():
			return c.beginLogin(body)
		case l.open():
			resp := body.ResponseKind().(*kmsg.SASLHandshakeResponse)
			resp.ErrorCode = kerr.IllegalSaslState.Code
			return resp, nil
		}
	case *kmsg.SASLAuthenticateRequest:
		switch {
		case l.stage == saslAuthenticate:
			return c.continueLogin(body)
		case l.open():
			resp := body.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			resp.ErrorCode = kerr.IllegalSaslState.Code
			resp.ErrorMessage = kmsg.StringPtr("SaslAuthenticate request received after successful authentication")
			return resp, nil
		}
	case nil, *kmsg.ApiVersionsRequest:
		if l.stage != saslAuthenticate {
			return nil, nil //nolint:nilnil // for others to answer
		}
	default:
		switch {
		case l.stage == saslDone && !l.expires.IsZero() && !c.f.opts.Now().Before(l.expires):
			return nil, frameErrorf("the session of %s has expired and it did not authenticate again", c.who.principal)
		case l.open():
			return nil, nil //nolint:nilnil // for others to answer
		}
	}
	return nil, frameErrorf("%s during the SASL authentication", req.name())
}

func (c *conn) beginLogin(body *kmsg.SASLHandshakeRequest) (kmsg.Response, error) {
	l := &c.login
	resp := body.ResponseKind().(*kmsg.SASLHandshakeResponse)
	resp.SupportedMechanisms = c.listener.SASL.Mechanisms
	if !slices.Contains(resp.SupportedMechanisms, body.Mechanism) {
		resp.ErrorCode = kerr.UnsupportedSaslMechanism.Code
		return resp, frameErrorf("the SASL mechanism %q is not offered", body.Mechanism)
	}
	l.end()
	l.mechanism, l.name = body.Mechanism, ""
	if body.Mechanism != mechanismPlain || c.listener.SASL.PlainUsers == nil {
		exchange, err := c.f.startRelay(c.ctx, body.Mechanism)
		if offered, refused := errors.AsType[*mechanismError](err); refused {
			resp.ErrorCode, resp.SupportedMechanisms = kerr.UnsupportedSaslMechanism.Code, offered.mechanisms
			return resp, frameErrorf("%v", err)
		} else if err != nil {
			return nil, c.nobodyToAsk(err)
		}
		l.exchange = exchange
	}
	l.stage = saslAuthenticate
	return resp, nil
}

// continueLogin takes one token. What a refusal says is the same whatever was
// wrong: it must not tell who exists.
func (c *conn) continueLogin(body *kmsg.SASLAuthenticateRequest) (kmsg.Response, error) {
	l := &c.login
	resp := body.ResponseKind().(*kmsg.SASLAuthenticateResponse)
	refuse := func(why error) (kmsg.Response, error) {
		l.end()
		if !c.f.pause(refusedDelay) {
			return nil, errEnded
		}
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		resp.ErrorMessage = kmsg.StringPtr("Authentication failed during authentication due to invalid credentials with SASL mechanism " + l.mechanism)
		return resp, frameErrorf("authentication failed: %v", why)
	}
	if l.name == "" {
		name, err := claimedName(l.mechanism, body.SASLAuthBytes)
		if err == nil && l.stage == saslAuthenticate && !c.mayBecome(name) {
			err = errors.New("another user than before on the same connection")
		}
		if err != nil {
			return refuse(err)
		}
		l.name = name
	}
	var answer relayed
	var err error
	if l.exchange != nil {
		answer, err = l.exchange.token(c.ctx, body.SASLAuthBytes)
	} else {
		answer, err = checkPlain(c.listener.SASL.PlainUsers, body.SASLAuthBytes)
	}
	if _, refused := errors.AsType[*credentialsError](err); refused {
		return refuse(err)
	} else if err != nil {
		return nil, c.nobodyToAsk(err)
	}
	resp.SASLAuthBytes = answer.token
	if !answer.complete {
		return resp, nil
	}
	l.end()
	l.stage, l.expires = saslDone, time.Time{}
	if answer.lifetime > 0 {
		l.expires = c.f.opts.Now().Add(answer.lifetime)
		resp.SessionLifetimeMillis = answer.lifetime.Milliseconds()
	}
	c.authenticated, c.who.principal = true, userType+l.name
	return resp, nil
}

// nobodyToAsk ends a connection without an answer: that the password is wrong,
// for which a client gives up, nobody has said.
func (c *conn) nobodyToAsk(err error) error {
	if c.ctx.Err() == nil {
		c.log.Warn().Err(err).Msg("a client cannot be authenticated: the home cluster does not answer")
	}
	return errEnded
}

// mayBecome says that a connection may take this name: any at first, and then
// its own (KIP-368).
func (c *conn) mayBecome(name string) bool {
	return !c.authenticated || c.who.principal == userType+name
}

// credentialsError is a refusal of whoever knows the passwords.
type credentialsError struct{ why string }

func (e *credentialsError) Error() string { return e.why }

const mechanismPlain = "PLAIN"

var (
	// scramFirst is a client-first-message without extensions: with them it
	// may be a delegation token, whose owner only the home cluster knows. It is
	// strict so that no other reader can read another name in the same bytes.
	scramFirst = regexp.MustCompile(`^n,(?:a=((?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,n=((?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+),r=[\x21-\x2b\x2d-\x7e]+$`)
	scramNames = strings.NewReplacer("=2C", ",", "=3D", "=")
)

// claimedName reads who the first token says that it comes from.
func claimedName(mechanism string, token []byte) (string, error) {
	if mechanism == mechanismPlain {
		name, _, err := splitPlain(token)
		return name, err
	}
	m := scramFirst.FindSubmatch(token)
	if m == nil {
		return "", errors.New("the first token of SCRAM does not parse")
	}
	if len(m[1]) > 0 && !bytes.Equal(m[1], m[2]) {
		return "", errors.New("an authorization id that is not the user's name")
	}
	return scramNames.Replace(string(m[2])), nil
}

// splitPlain reads a token of PLAIN as Kafka's PlainSaslServer does. An empty
// password is refused here: kfake takes it for that of a user it has not.
func splitPlain(token []byte) (name, password string, err error) {
	parts := strings.Split(string(token), "\x00")
	if len(parts) != 3 || !utf8.Valid(token) {
		return "", "", errors.New("the token of PLAIN does not parse")
	}
	authorization, name, password := parts[0], parts[1], parts[2]
	switch {
	case name == "" || password == "":
		return "", "", errors.New("no user name or no password")
	case authorization != "" && authorization != name:
		return "", "", errors.New("an authorization id that is not the user's name")
	}
	return name, password, nil
}

// checkPlain compares a token with the users of the listener. Hashes make the
// comparison take as long for a long password as for a short one.
func checkPlain(users map[string]properties.Secret, token []byte) (relayed, error) {
	name, password, err := splitPlain(token)
	if err != nil {
		return relayed{}, &credentialsError{why: err.Error()}
	}
	want, known := users[name]
	a, b := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(password))
	if subtle.ConstantTimeCompare(a[:], b[:]) != 1 || !known {
		return relayed{}, &credentialsError{why: "wrong user name or password"}
	}
	return relayed{complete: true}, nil
}
