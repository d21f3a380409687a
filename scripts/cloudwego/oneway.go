package main

import (
	"context"
	"fmt"

	"github.com/cloudwego/gopkg/protocol/thrift"
	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/serviceinfo"
)

// tellArgs are the arguments of Tell: field 1 is an id. They are written by hand, since a server of
// Kitex's generic calls panics at a oneway call.
type tellArgs struct{ ID string }

func (a *tellArgs) BLength() int {
	b := thrift.Binary
	return b.FieldBeginLength() + b.StringLength(a.ID) + b.FieldStopLength()
}

func (a *tellArgs) FastWriteNocopy(buf []byte, _ thrift.NocopyWriter) int {
	b := thrift.Binary
	n := b.WriteFieldBegin(buf, thrift.STRING, 1)
	n += b.WriteString(buf[n:], a.ID)
	return n + b.WriteFieldStop(buf[n:])
}

func (a *tellArgs) FastRead(buf []byte) (n int, err error) {
	for {
		kind, id, length, err := thrift.Binary.ReadFieldBegin(buf[n:])
		n += length
		if err != nil || kind == thrift.STOP {
			return n, err
		}
		if id == 1 && kind == thrift.STRING {
			a.ID, length, err = thrift.Binary.ReadString(buf[n:])
		} else {
			length, err = thrift.Binary.Skip(buf[n:], kind)
		}
		n += length
		if err != nil {
			return n, err
		}
	}
}

// teller is the service of Tell.
type teller struct{}

// tellerService has one method, which has no response.
var tellerService = &serviceinfo.ServiceInfo{
	ServiceName:  "Teller",
	HandlerType:  (*any)(nil),
	PayloadCodec: serviceinfo.Thrift,
	Extra:        map[string]any{serviceinfo.PackageName: "remora"},
	Methods: map[string]serviceinfo.MethodInfo{
		"Tell": serviceinfo.NewMethodInfo(func(_ context.Context, _, args, _ any) error {
			begin(args.(*tellArgs).ID)
			return nil
		}, func() any { return &tellArgs{} }, nil, true),
	},
}

// tell makes calls that have no response.
func tell(ctx context.Context, options []client.Option) error {
	c, err := client.NewClient(tellerService, append(options, client.WithDestService(serviceName))...)
	if err != nil {
		return err
	}
	return together(100, func(i int) error { return c.Call(ctx, "Tell", &tellArgs{fmt.Sprintf("told-%d", i)}, nil) })
}
