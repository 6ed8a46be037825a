package broker

import (
	"regexp"
	"strings"
	"testing"
)

// kafkaFirst is what Kafka's ScramMessages.ClientFirstMessage accepts, and the
// name that it finds.
var kafkaFirst = regexp.MustCompile(`(?s)^n,(?:a=((?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,(?:m=[\x01-\x2b\x2d-\x7f]+,)?` +
	`n=((?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+),r=([\x21-\x2b\x2d-\x7e]+)((?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*)$`)

// FuzzTokens: a token that is passed on names the user here that it names at
// the home cluster, which alone has checked the password.
func FuzzTokens(f *testing.F) {
	for _, token := range []string{
		"\x00alice\x00secret", "alice\x00alice\x00secret", "\x00a\x00b\x00c", "n,,n=alice,r=abc", "n,a=alice,n=alice,r=abc",
		"n,,n=a=2C=3Db,r=abc", "n,,m=x,n=bob,r=abc", "n,,n=alice,r=abc,tokenauth=true", "n,,n=alice,r=abc,n=bob,r=def",
	} {
		f.Add([]byte(token))
	}
	f.Fuzz(func(t *testing.T, token []byte) {
		if name, err := claimedName("PLAIN", token); err == nil {
			// Kafka's PlainSaslServer.extractTokens.
			parts := strings.Split(string(token), "\x00")
			if len(parts) != 3 || parts[1] != name || name == "" || parts[2] == "" || parts[0] != "" && parts[0] != name {
				t.Errorf("PLAIN %q is taken for %q", token, name)
			}
		}
		if name, err := claimedName("SCRAM-SHA-256", token); err == nil {
			m := kafkaFirst.FindSubmatch(token)
			if m == nil || len(m[4]) > 0 {
				t.Fatalf("SCRAM %q is taken for %q", token, name)
			}
			kafkas := strings.ReplaceAll(strings.ReplaceAll(string(m[2]), "=2C", ","), "=3D", "=")
			if kafkas != name || name == "" {
				t.Errorf("SCRAM %q is %q to Kafka and %q here", token, kafkas, name)
			}
		}
	})
}

// FuzzDistinguishedName: whatever a certificate holds, a principal has no
// control over where it ends: the name is escaped, or it is none.
func FuzzDistinguishedName(f *testing.F) {
	f.Add([]byte("\x30\x10\x31\x0e\x30\x0c\x06\x03\x55\x04\x03\x13\x05alice"))
	f.Add([]byte("\x30\x11\x31\x0f\x30\x0d\x06\x03\x55\x04\x03\x0c\x06\x00,=\\ \x20"))
	f.Add([]byte{0x30, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		principal, err := certificatePrincipal(raw)
		if err == nil && (len(principal) <= len(userType) || strings.ContainsRune(principal, 0)) {
			t.Errorf("% x is %q", raw, principal)
		}
	})
}
