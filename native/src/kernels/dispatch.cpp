// Which code paths this CPU can run.
#include "paths.h"

namespace colibri {

namespace {

#ifdef __x86_64__
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
}
#endif

}  // namespace

std::vector<Isa> available_isas() {
    std::vector<Isa> out{Isa::Scalar};
#ifdef __x86_64__
    __builtin_cpu_init();
    if (has_avx2()) out.push_back(Isa::Avx2);
    if (has_avx512()) out.push_back(Isa::Avx512);
#endif
    return out;
}

const Kernels& kernels([[maybe_unused]] Isa isa) {
#ifdef __x86_64__
    if (isa == Isa::Avx512) return kAvx512Kernels;
    if (isa == Isa::Avx2) return kAvx2Kernels;
#endif
    return kScalarKernels;
}

const char* isa_name(Isa isa) {
    switch (isa) {
        case Isa::Avx2: return "avx2";
        case Isa::Avx512: return "avx512";
        case Isa::Scalar: break;
    }
    return "scalar";
}

}  // namespace colibri
