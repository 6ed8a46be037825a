package broker

import (
	"encoding/hex"
	"net"
	"testing"
)

// Names as Java 17 encodes and writes them (X500Principal.getName).
func TestACertificatesNameIsWrittenAsJavaWritesIt(t *testing.T) {
	for der, want := range map[string]string{
		"3010310e300c06035504031305616c696365": `CN=alice`,
		"3060310b3009060355040613024445310b3009060355040813024245310f300d060355040713064265726c696e31153013060355040a130c4578616d706c6520496e632e310c300a060355040b13036f7073310e300c060355040313056774632d31": `CN=gtc-1,OU=ops,O=Example Inc.,L=Berlin,ST=BE,C=DE`,
		"3021310b3009060355040a130261623112301006035504031309446f652c204a616e65":   `CN=Doe\, Jane,O=ab`,
		"301d310b3009060355040a0c022378310e300c06035504030c05613d622363":           `CN=a\=b\#c,O=\#x`,
		"300e310c300a06035504031303612b62":                                         `CN=a\+b`,
		"3011310f300d06035504031306206c65616420":                                   `CN=\ lead\ `,
		"3022310a300806035504031301783114301206092a864886f70d01090116056140622e63": `1.2.840.113549.1.9.1=#16056140622e63,CN=x`,
		"304231133011060a0992268993f22c64011916036f726731173015060a0992268993f22c64011916076578616d706c6531123010060a0992268993f22c64010113027531": `UID=u1,DC=example,DC=org`,
		"3022310a3008060355040a13017a3114300806035504031301783008060355040b130179":                                                                 `CN=x+OU=y,O=z`,
		"301a310c300a06035504031303736572310a30080603550405130135":                                                                                 `2.5.4.5=#130135,CN=ser`,
		"301a3118301606035504030c0f5a6fc3ab20225122203c613b623e5c":                                                                                 `CN=Zoë \"Q\" \<a\;b\>\\`,
		"301d310a30080603550403130173310f300d060355040913064d61696e2031":                                                                           `STREET=Main 1,CN=s`,
		"301b310a30080603550403130174310d300b060355040c1304626f7373":                                                                               `2.5.4.12=#1304626f7373,CN=t`,
		"301a311830160603550403130f74776f2020626c616e6b732020696e":                                                                                 `CN=two  blanks  in`,
		"301a310a3008060355040313016f310c300a06032a03041303616263":                                                                                 `1.2.3.4=#1303616263,CN=o`,
	} {
		raw, err := hex.DecodeString(der)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := certificatePrincipal(raw); err != nil || got != "User:"+want {
			t.Errorf("%q, %v; Java writes %q", got, err, want)
		}
	}
	for _, bad := range []string{"", "3000", "ff", "301031"} {
		raw, err := hex.DecodeString(bad)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := certificatePrincipal(raw); err == nil {
			t.Errorf("the subject %q is taken for %q", bad, got)
		}
	}
}

func TestAHostIsWrittenAsJavaWritesIt(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:9": "127.0.0.1", "[::1]:9": "0:0:0:0:0:0:0:1", "[2001:db8::a:0:1]:9": "2001:db8:0:0:0:a:0:1",
		"[::ffff:10.0.0.1]:9": "10.0.0.1", "[fe80::1%eth0]:9": "fe80:0:0:0:0:0:0:1",
	} {
		tcp, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := hostOf(tcp); got != want {
			t.Errorf("%s is the host %q, want %q", addr, got, want)
		}
	}
}

// What one reader takes for one user and another reader for another must not be
// taken at all: the node passes the token on and believes the home cluster.
func TestTokensNameOneUserOrNone(t *testing.T) {
	for _, c := range []struct{ mechanism, token, want string }{
		{"PLAIN", "\x00alice\x00secret", "alice"},
		{"PLAIN", "alice\x00alice\x00secret", "alice"},
		{"PLAIN", "bob\x00alice\x00secret", ""},
		{"PLAIN", "\x00alice\x00", ""},
		{"PLAIN", "\x00\x00secret", ""},
		{"PLAIN", "\x00alice\x00sec\x00ret", ""},
		{"PLAIN", "\x00ali\xffce\x00secret", ""},
		{"PLAIN", "", ""},
		{"SCRAM-SHA-256", "n,,n=alice,r=abc", "alice"},
		{"SCRAM-SHA-256", "n,a=alice,n=alice,r=abc", "alice"},
		{"SCRAM-SHA-256", "n,a=bob,n=alice,r=abc", ""},
		{"SCRAM-SHA-256", "n,,n=a=2Cb=3Dc,r=abc", "a,b=c"},
		{"SCRAM-SHA-512", "n,,n=a=3D2Cb,r=abc", "a=2Cb"},
		{"SCRAM-SHA-256", "n,,n=a=b,r=abc", ""},
		{"SCRAM-SHA-256", "n,,n=alice,r=abc,tokenauth=true", ""},
		{"SCRAM-SHA-256", "n,,m=x,n=alice,r=abc", ""},
		{"SCRAM-SHA-256", "y,,n=alice,r=abc", ""},
		{"SCRAM-SHA-256", "n,,n=,r=abc", ""},
		{"SCRAM-SHA-256", "n,,n=alice,r=", ""},
		{"SCRAM-SHA-256", "n,,n=alice,r=abc\n", ""},
	} {
		got, err := claimedName(c.mechanism, []byte(c.token))
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s %q names %q (%v), want %q", c.mechanism, c.token, got, err, c.want)
		}
	}
}
