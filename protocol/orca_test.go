package protocol

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strings"
	"testing"
)

// appendDouble appends a field of Protocol Buffers.
func appendDouble(b []byte, field uint64, v float64) []byte {
	return binary.LittleEndian.AppendUint64(binary.AppendUvarint(b, field<<3|wire64), math.Float64bits(v))
}

// binaryReport has fields of each type around the three that are read.
func binaryReport(cpu, rate, application float64) []byte {
	b := appendDouble(nil, fieldCPU, cpu)
	b = append(b, 2<<3|wire64, 1, 2, 3, 4, 5, 6, 7, 8) // mem_utilization
	b = append(b, 3<<3|wireVarint, 0x80, 1)            // rps
	b = append(b, 5<<3|wireBytes, 3, 0x0a, 1, 'x')     // utilization
	b = append(b, 15<<3|wire32, 1, 2, 3, 4)            // unknown
	return appendDouble(appendDouble(b, fieldRate, rate), fieldApplication, application)
}

// encoded is a report in binary as a header has it.
func encoded(b ...byte) string { return base64.RawStdEncoding.EncodeToString(b) }

func TestLoadReported(t *testing.T) {
	raw := base64.RawStdEncoding.EncodeToString(binaryReport(0.5, 100, 0))
	for _, c := range []struct {
		name, value string
		want        LoadReport
		ok          bool
	}{
		{"Endpoint-Load-Metrics-Bin", raw, LoadReport{CPU: 0.5, Rate: 100}, true},
		{HeaderLoadBinary, base64.StdEncoding.EncodeToString(binaryReport(0.5, 100, 0.25)), LoadReport{0.5, 0.25, 100}, true},
		{HeaderLoadBinary, "", LoadReport{}, true}, // a report of zeros
		{HeaderLoadBinary, "*", LoadReport{}, false},
		{HeaderLoadBinary, strings.Repeat("A", 2*maxLoadReport), LoadReport{}, false},
		{HeaderLoad, "BIN " + raw, LoadReport{CPU: 0.5, Rate: 100}, true},
		{HeaderLoad, "TEXT cpu_utilization=0.5, rps_fractional=1e2,named_metrics.x=y", LoadReport{CPU: 0.5, Rate: 100}, true},
		{HeaderLoad, "TEXT ,cpu_utilization=0.5,, rps_fractional=1e2 , ", LoadReport{CPU: 0.5, Rate: 100}, true},
		{HeaderLoad, "TEXT cpu_utilization", LoadReport{}, false},
		{HeaderLoad, "TEXT cpu_utilization=-1", LoadReport{}, false},
		{HeaderLoad, "TEXT cpu_utilization=NaN", LoadReport{}, false},
		{HeaderLoad, "TEXT rps_fractional=1e999", LoadReport{}, false},
		{HeaderLoad, "TEXT rps_fractional=1.7976931348623157e308", LoadReport{Rate: math.MaxFloat64}, true},
		{HeaderLoad, `JSON {"cpu_utilization": 0.5, "rpsFractional":100,"application_utilization":1.5}`, LoadReport{0.5, 1.5, 100}, true},
		{HeaderLoad, `JSON {"named_metrics":{"cpu_utilization":9,"a\"}":[1]},"cpuUtilization":2 , "x":"y"} `, LoadReport{CPU: 2}, true},
		{HeaderLoad, `JSON {"cpu_utilization": 0.5`, LoadReport{}, false},
		{HeaderLoad, `JSON {"cpu_utilization": -0.5}`, LoadReport{}, false},
		{HeaderLoad, `JSON {} {}`, LoadReport{}, false},
		{HeaderLoad, `JSON 1}`, LoadReport{}, false},
		{HeaderLoad, `XML <load/>`, LoadReport{}, false},
		{HeaderLoad, `JSON {"cpu_utilization": 0.5, "x": "y`, LoadReport{}, false},
		{HeaderLoad, `JSON {"cpu_utilization": 0.5, "x": "\`, LoadReport{}, false},
		{HeaderLoad, `JSON {"a\"cpu_utilization": 0.5}`, LoadReport{}, true},
		{HeaderLoad, "JSON\t{}", LoadReport{}, false},
		{HeaderLoad, "JSON {\t\"cpu_utilization\"\r\n:\t0.5\n,\"a\":[0.1,[0.2]],\"b\":true}", LoadReport{CPU: 0.5}, true},
		{HeaderLoad, `JSON {"cpu_utilization": 0.5}}`, LoadReport{}, false},
		{HeaderLoad, `JSON ]`, LoadReport{}, false},
		{HeaderLoad, `JSON {"cpu_utilization": 0.5, 7}`, LoadReport{CPU: 0.5}, true}, // what has no name is skipped
		{HeaderLoad, `JSON {"cpu_utilization": [], 7}`, LoadReport{}, true},
		{HeaderLoad, `JSON {"cpu_utilization": [] 7}`, LoadReport{}, true},
		{HeaderLoad, `JSON {"": 7, "cpu_utilization": 0.5}`, LoadReport{CPU: 0.5}, true},
		{HeaderLoad, `JSON {"cpu_utilization": 0`, LoadReport{}, false},
		{HeaderLoad, `JSON {"cpu_utilization": x}`, LoadReport{}, false},
		{HeaderLoad, "JSON ", LoadReport{}, false},
		{HeaderLoad, "", LoadReport{}, false},
		{HeaderLoad, "TEXT application_utilization=0.25", LoadReport{Application: 0.25}, true},
		{HeaderLoad, "TEXT applicationUtilization=0.25,cpuUtilization=1", LoadReport{CPU: 1, Application: 0.25}, true},
		{HeaderLoad, "TEXT cpu_utilization=0", LoadReport{}, true},
		{HeaderLoad, "TEXT x", LoadReport{}, false},
		{HeaderLoad, "TEXT cpu_utilization=0.5,x", LoadReport{}, false},
		{HeaderLoad, "TEXT " + strings.Repeat(",", maxLoadReport-len("TEXT ")), LoadReport{}, true},
		{HeaderLoad, "TEXT " + strings.Repeat(",", maxLoadReport-len("TEXT ")+1), LoadReport{}, false},
		{HeaderLoadBinary, encoded(append([]byte{15<<3 | wireBytes, 0xfd, 7}, make([]byte, maxLoadReport-3)...)...), LoadReport{}, true},
		{HeaderLoadBinary, encoded(append([]byte{15<<3 | wireBytes, 0xfe, 7}, make([]byte, maxLoadReport-2)...)...), LoadReport{}, false},
		{HeaderLoadBinary, encoded(0x80), LoadReport{}, false},              // half a tag
		{HeaderLoadBinary, encoded(3<<3 | wireVarint), LoadReport{}, false}, // without its number
		{HeaderLoadBinary, encoded(3<<3|wireVarint, 0x80), LoadReport{}, false},
		{HeaderLoadBinary, encoded(3<<3|wireVarint, 0), LoadReport{}, true},
		{HeaderLoadBinary, encoded(5<<3 | wireBytes), LoadReport{}, false}, // without its length
		{HeaderLoadBinary, encoded(5<<3|wireBytes, 2, 'a'), LoadReport{}, false},
		{HeaderLoadBinary, encoded(5<<3|wireBytes, 1, 'a'), LoadReport{}, true},
		{HeaderLoadBinary, encoded(5<<3|wireBytes, 0), LoadReport{}, true},
		{HeaderLoadBinary, encoded(5<<3|wireBytes, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1), LoadReport{}, false},
		{HeaderLoadBinary, encoded(fieldCPU<<3|wire64, 0, 0, 0, 0, 0, 0, 0), LoadReport{}, false},
		{HeaderLoadBinary, encoded(fieldCPU<<3|wire64, 0, 0, 0, 0, 0, 0, 0xf0, 0xbf), LoadReport{}, false}, // -1
		{HeaderLoadBinary, encoded(15<<3|wire32, 0, 0, 0), LoadReport{}, false},
		{HeaderLoadBinary, encoded(15<<3|3, 0, 0, 0), LoadReport{}, false}, // a group
		{"endpoint-load-metrics-bix", raw, LoadReport{}, false},
		{"endpoint-load-metricx", "TEXT cpu_utilization=0.5", LoadReport{}, false},
	} {
		got, ok := LoadReported([]Header{{Name: []byte("a"), Value: []byte("b")}, {Name: []byte(c.name), Value: []byte(c.value)}})
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %s: got %+v, %t", c.name, c.value, got, ok)
		}
	}
}

// TestUtilization: the application's own measure comes before the processors', also a small one.
func TestUtilization(t *testing.T) {
	if got := (&LoadReport{CPU: 0.75, Application: 0.5}).Utilization(); got != 0.5 {
		t.Errorf("half of the application's capacity: %v", got)
	}
	for _, c := range []struct{ r LoadReport }{{LoadReport{CPU: 3}}, {LoadReport{CPU: 1, Application: 3}}, {LoadReport{CPU: 5, Application: 3}}} {
		if got := c.r.Utilization(); got != 3 {
			t.Errorf("%+v: %v", c.r, got)
		}
	}
}

func TestLoadReportedAllocatesNothing(t *testing.T) {
	for _, value := range []string{"BIN " + base64.RawStdEncoding.EncodeToString(binaryReport(0.5, 100, 0)),
		"TEXT cpu_utilization=0.5,rps_fractional=100", `JSON {"cpu_utilization":0.5,"rps_fractional":100}`} {
		hs := []Header{{Name: []byte(HeaderLoad), Value: []byte(value)}}
		if n := testing.AllocsPerRun(100, func() { _, _ = LoadReported(hs) }); n != 0 {
			t.Errorf("%s: %v allocations", value, n)
		}
	}
}

// FuzzLoadReported: whatever an endpoint says, a report has usable numbers.
func FuzzLoadReported(f *testing.F) {
	for _, s := range []string{"TEXT cpu_utilization=0.5, rps_fractional=1", `JSON {"cpu_utilization":0.5,"named_metrics":{"a":1}}`, "BIN AAAA"} {
		f.Add(false, []byte(s))
	}
	f.Add(true, []byte(base64.RawStdEncoding.EncodeToString(binaryReport(0.5, 100, 1))))
	f.Fuzz(func(t *testing.T, bin bool, value []byte) {
		name := HeaderLoad
		if bin {
			name = HeaderLoadBinary
		}
		r, ok := LoadReported([]Header{{Name: []byte(name), Value: value}})
		for _, v := range []float64{r.CPU, r.Application, r.Rate} {
			if ok && (!(v >= 0) || math.IsInf(v, 0)) {
				t.Errorf("%q: %+v", value, r)
			}
		}
	})
}
