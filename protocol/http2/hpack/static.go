package hpack

// StaticLen is the number of entries of the static table.
const StaticLen = 61

// static is the static table (RFC 7541 appendix A), by index. Its memory never changes.
var static = [StaticLen + 1]struct{ name, value []byte }{}

// staticText has the names and values of the static table from index 1 on.
var staticText = [StaticLen][2]string{
	{":authority"}, {":method", "GET"}, {":method", "POST"}, {":path", "/"}, {":path", "/index.html"},
	{":scheme", "http"}, {":scheme", "https"}, {":status", "200"}, {":status", "204"}, {":status", "206"},
	{":status", "304"}, {":status", "400"}, {":status", "404"}, {":status", "500"}, {"accept-charset"},
	{"accept-encoding", "gzip, deflate"}, {"accept-language"}, {"accept-ranges"}, {"accept"},
	{"access-control-allow-origin"}, {"age"}, {"allow"}, {"authorization"}, {"cache-control"},
	{"content-disposition"}, {"content-encoding"}, {"content-language"}, {"content-length"},
	{"content-location"}, {"content-range"}, {"content-type"}, {"cookie"}, {"date"}, {"etag"}, {"expect"},
	{"expires"}, {"from"}, {"host"}, {"if-match"}, {"if-modified-since"}, {"if-none-match"}, {"if-range"},
	{"if-unmodified-since"}, {"last-modified"}, {"link"}, {"location"}, {"max-forwards"},
	{"proxy-authenticate"}, {"proxy-authorization"}, {"range"}, {"referer"}, {"refresh"}, {"retry-after"},
	{"server"}, {"set-cookie"}, {"strict-transport-security"}, {"transfer-encoding"}, {"user-agent"},
	{"vary"}, {"via"}, {"www-authenticate"},
}

// staticSlots finds the first entry with a name: by the hash of the name, with linear probing.
var staticSlots [128]uint8

func init() {
	for i, t := range staticText {
		static[i+1].name, static[i+1].value = []byte(t[0]), []byte(t[1])
		if staticIndex(t[0]) > 0 {
			continue
		}
		s := staticHash(t[0])
		for staticSlots[s] != 0 {
			s = (s + 1) % uint8(len(staticSlots))
		}
		staticSlots[s] = uint8(i + 1)
	}
}

// staticHash mixes what distinguishes the names; its argument is in lower case.
func staticHash[T string | []byte](lower T) uint8 {
	n := len(lower)
	return uint8(uint(n)*37+uint(lower[n-1])*7+uint(lower[n/2])*3+uint(lower[0])) % uint8(len(staticSlots))
}

// staticIndex returns the first index with this name, which is not empty and in lower case, or
// 0.
func staticIndex[T string | []byte](lower T) int {
	for s := staticHash(lower); staticSlots[s] != 0; s = (s + 1) % uint8(len(staticSlots)) {
		if i := staticSlots[s]; string(static[i].name) == string(lower) {
			return int(i)
		}
	}
	return 0
}
